import { type Document, MongoClient, type Timestamp } from 'mongodb'
import type { Selects } from '../support/compare.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { Random } from '../support/random.ts'
import { seedData } from '../support/seed-data.ts'
import { selectedNames, untilApplied } from '../support/until-applied.ts'
import { createWorkload } from '../support/workload.ts'
import {
  archiveDatabase,
  type NamedCollection,
  workloadCollections,
  workloadDatabases,
} from '../support/workload-world.ts'
import type { Pair } from './clusters.ts'
import { type MigrationResult, runMigration } from './migration.ts'
import { crossesEdge, type RandomFilter, randomFilter } from './random-filter.ts'
import { migrateStepwise } from './stepwise.ts'

export interface FilterResult {
  filter: RandomFilter
  /** Renames across the edge of the filter, as the source's oplog records them. */
  crossings: string[]
}

/** Share of the random workload's steps that are DDL: larger than usual. */
const ddlShare = 0.25

/**
 * Runs one migration with a filter that the seed generates, under the random workload with DDL, in databases that the filter selects
 * and in others. The workload renames collections across the filter's edge. The clusters must be equal at the end, and collections of
 * the destination that the filter does not select must not change.
 */
export async function migrateFiltered(pair: Pair, seed: number, steps = 120): Promise<MigrationResult<FilterResult>> {
  const { source, destination } = pair
  const filter = randomFilter(seed)
  const { selects } = filter
  const random = new Random(`faults ${seed}`)
  const options = { clusters: pair, name: `filter-${seed}`, random, start: { ...filter.start } }
  return await runMigration(options, async (migration) => {
    const { problems } = migration
    await seedData(source.uri, seed, 0.05)
    await seedOthers(destination.uri, selects)
    const before = await fingerprints(destination.uri, () => true)
    const workload = createWorkload({ uri: source.uri, seed, ddl: true, ddlShare, transactions: true })
    await workload.runSteps(20)
    const startedAfter = await newestOplogTime(source.uri)
    const lastSteps = Math.ceil(steps / 3)
    // A rename across the edge aborts a commit, so the commit must not begin before all such renames are applied.
    const whenWritten = (): Promise<void> => untilApplied(pair, selectedNames(selects))
    await migrateStepwise(migration, { workload, steps, lastSteps, whenWritten })

    const crossings = (await renames(source.uri, startedAfter))
      .filter(([from, to]) => crossesEdge(selects, from, to))
      .map((both) => both.map(({ database, name }) => `${database}.${name}`).join(' to '))
    await migration.compare({ selects })
    const after = await fingerprints(destination.uri, (...of) => !selects(...of))
    for (const name of new Set([...Object.keys(before), ...Object.keys(after)])) {
      if (before[name] !== after[name]) problems.push(`${name}, which is not selected, changed on the destination`)
    }
    return { filter, crossings }
  })
}

/** Creates foreign collections on the destination: under the workload's names that the filter does not select, and in another database. */
async function seedOthers(uri: string, selects: Selects): Promise<void> {
  await using client = await MongoClient.connect(uri)
  for (const database of [...workloadDatabases, archiveDatabase, 'elsewhere']) {
    const db = client.db(database)
    for (const name of [...workloadCollections, 'small']) {
      if (selects(database, name)) continue
      const collection = db.collection<{ _id: number }>(name)
      await collection.insertMany([{ _id: 2 }, { _id: 1 }])
      await collection.createIndex({ other: 1 }, { unique: true, sparse: true })
    }
    if (!selects(database, 'capped')) await db.createCollection('capped', { capped: true, size: 4_096 })
    if (!selects(database, 'view_two')) await db.createCollection('view_two', { viewOn: 'nowhere', pipeline: [] })
  }
}

async function newestOplogTime(uri: string): Promise<Timestamp> {
  await using client = await MongoClient.connect(uri)
  const oplog = client.db('local').collection('oplog.rs')
  const [newest] = await oplog.find().sort({ $natural: -1 }).limit(1).toArray()
  return newest?.['ts']
}

async function renames(uri: string, after: Timestamp): Promise<[NamedCollection, NamedCollection][]> {
  await using client = await MongoClient.connect(uri)
  const found = await client
    .db('local')
    .collection<Document>('oplog.rs')
    .find({ ts: { $gt: after }, op: 'c', 'o.renameCollection': { $exists: true } })
    .toArray()
  return found.map(({ o }) => [parsed(o.renameCollection), parsed(o.to)])
}

function parsed(namespace: string): NamedCollection {
  const dot = namespace.indexOf('.')
  return { database: namespace.slice(0, dot), name: namespace.slice(dot + 1) }
}
