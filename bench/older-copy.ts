import type { ObjectId } from 'mongodb'
import { Random } from '../test/support/random.ts'
import { startChild } from './child.ts'
import { documentMaker, type Shape } from './load.ts'
import { insertRaw } from './raw-insert.ts'
import { database, type Pair, type Server } from './servers.ts'

const collection = 'c0'
const insertShare = 0.3
const updateShare = 0.6
const bulkOperations = 1_000

/** Copies the source with the naive copier. */
export async function copyRaw({ source, destination }: Pair): Promise<void> {
  const input = { source: source.uri, destination: destination.uri, database }
  await using child = await startChild('naive-copier', input)
  await child.go()
}

/**
 * Inserts, updates and deletes documents of the source: `writes` writes in all (30/60/10). Each write changes a
 * different document, and the updates and deletes are spread over the whole collection. An update does not change the
 * size of a document. Returns the total size of the documents that are now missing in the copy or different there.
 */
export async function changeSource({ client }: Server, shape: Shape, writes: number): Promise<number> {
  const things = client.db(database).collection(collection)
  const inserts = Math.floor(writes * insertShare)
  const pipeline = [{ $project: { _id: 1 } }, { $sample: { size: writes - inserts } }]
  const sampled = await things.aggregate<{ _id: ObjectId }>(pipeline).toArray()
  const ids = [...new Map(sampled.map(({ _id }) => [_id.toHexString(), _id])).values()]
  const updated = ids.splice(0, Math.floor(writes * updateShare))
  const random = new Random('older copy')
  for (const some of inBulks(updated)) {
    const updates = some.map((_id) => ({
      updateOne: { filter: { _id }, update: { $set: { score: random.fraction(), open: false } } },
    }))
    await things.bulkWrite(updates, { ordered: false })
  }
  for (const some of inBulks(ids)) await things.deleteMany({ _id: { $in: some } })
  const nextDocument = documentMaker(shape.documentBytes)
  for (const some of inBulks(Array.from({ length: inserts }, nextDocument))) {
    await insertRaw(client.db(database), collection, some, 1)
  }
  return (updated.length + inserts) * shape.documentBytes
}

function* inBulks<Item>(items: Item[]): Generator<Item[]> {
  for (let from = 0; from < items.length; from += bulkOperations) yield items.slice(from, from + bulkOperations)
}
