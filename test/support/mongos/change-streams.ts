import { type Document, Timestamp } from 'mongodb'
import { argument, ask, type Command, exactArguments, type Mongos } from './command.ts'
import { fieldNamed, fieldsOf, readFields } from './fields.ts'
import { MergedStream, type StreamStart, timeOf } from './merged-stream.ts'

/** Milliseconds that a getMore without maxTimeMS waits for events, as on a server. */
const awaitDefaultMs = 1_000
const batchSizeDefault = 100_000

/**
 * Fields that are not forwarded to the shards, because they would tie the shards' cursors to the client's session or
 * connection, or to the first batch.
 */
const droppedFields = ['pipeline', 'cursor', 'lsid', '$clusterTime', 'txnNumber', 'maxTimeMS', '$readPreference']

export const changeStreams = { isOpening, open, getMore }

function isOpening({ fields }: Command): boolean {
  const pipeline = fieldNamed(fields, 'pipeline')
  const [first] = pipeline ? readFields(pipeline.value) : []
  return first !== undefined && first.type === 0x03 && readFields(first.value)[0]?.name === '$changeStream'
}

async function open(command: Command, mongos: Mongos): Promise<Buffer> {
  const { pipeline } = exactArguments(command, ['pipeline']) as { pipeline: [Document, ...Document[]] }
  const [{ $changeStream: options }, ...stages] = pipeline
  const start = await startOf(command, mongos, options)
  const { resumeAfter, startAfter, ...kept } = options
  const opening = { $changeStream: { ...kept, startAtOperationTime: start.startAt } }
  const aggregate = [
    ...command.fields.filter(({ name }) => !droppedFields.includes(name)),
    ...fieldsOf({ pipeline: [opening, ...stages], cursor: { batchSize: 0 } }),
  ]
  const ns = command.target === '1' ? `${command.database}.$cmd.aggregate` : command.namespace
  const stream: MergedStream = new MergedStream(ns, mongos.openLinks, () => mongos.streams.delete(String(stream.id)))
  try {
    await stream.open(mongos.catalog, aggregate, start)
  } catch (error) {
    stream.close()
    throw error
  }
  mongos.streams.set(String(stream.id), stream)
  return stream.firstReply()
}

/**
 * Returns the start of the shards' streams. Only one shard knows a resume token of the merged stream, so all shards
 * start at the token's time and events up to the token are skipped.
 */
async function startOf(command: Command, mongos: Mongos, options: Document): Promise<StreamStart> {
  const token = options['resumeAfter'] ?? options['startAfter']
  if (token) return { startAt: new Timestamp(timeOf(token._data)), after: token._data }
  if (options['startAtOperationTime']) return { startAt: options['startAtOperationTime'] }
  let now = new Timestamp(0n)
  for (const shard of await mongos.catalog.shardNames()) {
    const { operationTime } = await ask(command, await mongos.catalog.host(shard), 'admin', { ping: 1 })
    if (operationTime.greaterThan(now)) now = operationTime
  }
  return { startAt: now, afterTime: now }
}

async function getMore(command: Command, stream: MergedStream): Promise<Buffer> {
  const awaitMs = Number(argument(command, 'maxTimeMS') ?? awaitDefaultMs)
  const batchSize = Number(argument(command, 'batchSize') ?? 0)
  return await stream.next(awaitMs, batchSize || batchSizeDefault)
}
