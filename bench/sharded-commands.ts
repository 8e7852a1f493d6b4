import { type Collection, type MongoClient, Timestamp } from 'mongodb'
import { type Asked, AskedDocuments } from '../test/support/asked-documents.ts'
import type { ShardKeyPattern } from '../test/support/distribute-chunks.ts'
import { KeyedWrites, keyValues } from '../test/support/keyed-writes.ts'
import { type Row, rowsOf } from '../test/support/rows.ts'
import { untilApplied } from '../test/support/until-applied.ts'
import { untilTargeted } from '../test/support/until-targeted.ts'
import { type Measured, missesOf } from './report.ts'
import { createSharded, startShardedServers } from './sharded-servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const writesInFull = 20_000
const documents = 4_000
const name = ['app', 'things'] as const

/** What the profilers of the shards of both clusters have recorded. Each list has a number for each shard. */
interface Recorded {
  sourceReads: Asked[]
  destinationReads: Asked[]
  updates: number[]
  deletes: number[]
}

/**
 * Counts what the shards of both clusters receive from tandem for random single-document writes. The counts are those of the
 * servers' profilers. They do not depend on the speed of the machine, so they are taken once.
 */
export async function benchShardedCommands(options: BenchOptions, key: ShardKeyPattern): Promise<Measured> {
  await using servers = await startShardedServers(options)
  const { source, destination } = servers
  await createSharded(source, name, key, keyValues)
  const collection = rowsOf(source.client, name[1], name[0])
  const writing = await KeyedWrites.on(collection, documents, 'bench')
  await using onSource = await AskedDocuments.from(source.cluster, name[1])
  await using onDestination = await AskedDocuments.from(destination.cluster, name[1])
  await using tandem = await startReady(servers, options)
  await syncUntilCanCommit(tandem)
  await untilTargeted(servers, collection, { _id: 1, k: 7 }, onSource)

  const began = await timeOf(source.client)
  onSource.restart()
  onDestination.restart()
  await writing.run(Math.ceil(writesInFull * options.scale))
  await collection.insertOne({ _id: endId, k: 0 })
  await untilApplied(servers, [name])
  const recorded: Recorded = {
    sourceReads: await onSource.read(),
    destinationReads: await onDestination.read(),
    updates: await onDestination.statements(name[1], 'update'),
    deletes: await onDestination.statements(name[1], 'remove'),
  }
  return rowOf(writing.counts, await eventsAfter(began, collection), recorded)
}

/** The time of the cluster after all previous writes. */
async function timeOf(client: MongoClient): Promise<Timestamp> {
  await using session = client.startSession()
  await rowsOf(client, name[1], name[0]).findOne({}, { session, readConcern: 'majority' })
  if (!session.operationTime) throw new Error('the router does not report the time of an operation')
  return session.operationTime
}

const endId = 'end'

/** The number of change events after this time and before the one that inserts the document `endId`. */
async function eventsAfter({ t, i }: Timestamp, collection: Collection<Row>): Promise<number> {
  const startAtOperationTime = new Timestamp({ t, i: i + 1 })
  await using stream = collection.watch([{ $project: { 'documentKey._id': 1 } }], { startAtOperationTime })
  let events = 0
  for await (const change of stream) {
    if ('documentKey' in change && change.documentKey._id === endId) break
    events += 1
  }
  return events
}

function rowOf(writes: KeyedWrites['counts'], events: number, recorded: Recorded): Measured {
  const { sourceReads, destinationReads, updates, deletes } = recorded
  const asked = total(sourceReads.map((shard) => shard.documents))
  const notInserted = events - writes.inserts
  const figures = {
    writes: writes.writes,
    events,
    'inserts among them': writes.inserts,
    'key changes among them': writes.keyChanges,
    'removals: deletes and key changes': writes.removed,
    'documents read on the source per event': asked / events,
    'documents read on the source per event that is not an insert': asked / notInserted,
    'documents read on the destination per event': total(destinationReads.map((shard) => shard.documents)) / events,
    'updates and deletes per event': (total(updates) + total(deletes)) / events,
    'updates and deletes per event that is not an insert': (total(updates) + total(deletes)) / notInserted,
    'deletes per removal': total(deletes) / writes.removed,
    ...ofEachShard(
      'source: finds',
      sourceReads.map((shard) => shard.commands),
    ),
    ...ofEachShard(
      'source: documents read',
      sourceReads.map((shard) => shard.documents),
    ),
    ...ofEachShard(
      'destination: finds',
      destinationReads.map((shard) => shard.commands),
    ),
    ...ofEachShard('destination: updates', updates),
    ...ofEachShard('destination: deletes', deletes),
  }
  const targets = {
    'documents read on the source per event': { atMost: 1.1 },
    'updates and deletes per event': { atMost: 1.1 },
    'deletes per removal': { atMost: 1.1 },
  }
  return { figures, misses: missesOf(figures, targets) }
}

const total = (counts: number[]): number => counts.reduce((sum, count) => sum + count, 0)

const ofEachShard = (what: string, counts: number[]): Record<string, number> =>
  Object.fromEntries(counts.map((count, shard) => [`${what}, shard ${shard}`, count]))
