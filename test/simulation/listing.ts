import { BSON, type Document, UUID } from 'mongodb'
import { collectionUuid } from './content.ts'
import { collectionName, database } from './event-log.ts'
import { finished, numberOf } from './wire.ts'

/** A cluster's catalog as the listing commands return it. */

/** The filters with which tandem lists collections. */
interface Filter {
  'info.uuid'?: { $in: UUID[] }
  name?: string | { $in: string[] }
  type?: string
}

export function listCollections(
  side: 'source' | 'destination',
  count: number,
  where: string,
  command: Document,
): Document {
  const { 'info.uuid': uuids, name, type, ...unknown } = (command['filter'] ?? {}) as Filter
  if (Object.keys(unknown).length > 0)
    throw new Error(`the simulated listing does not support ${JSON.stringify(unknown)}`)
  const found = Array.from({ length: where === database ? count : 0 }, (_, number) => ({
    name: collectionName(number),
    type: 'collection',
    options: {},
    info: { readOnly: false, uuid: new UUID(Buffer.from(collectionUuid(side, number), 'latin1')) },
  })).filter(
    (one) =>
      (!uuids || uuids.$in.some((uuid) => one.info.uuid.equals(uuid))) &&
      (name === undefined || (typeof name === 'string' ? name === one.name : name.$in.includes(one.name))) &&
      (type === undefined || type === one.type),
  )
  return finished(
    found.map((one) => Buffer.from(BSON.serialize(one))),
    `${where}.$cmd.listCollections`,
  )
}

export function listIndexes(indexes: Map<string, Document>[], command: Document): Document {
  const given = command['listIndexes'] as string | UUID
  const number =
    typeof given === 'string' ? Number(given.slice(collectionName(0).length - 1)) : numberOf({ collectionUUID: given })
  const listed = [{ v: 2, key: { _id: 1 }, name: '_id_' }, ...(indexes[number]?.values() ?? [])]
  return finished(
    listed.map((one) => Buffer.from(BSON.serialize(one))),
    `${database}.none`,
  )
}
