import { expect, test } from 'vitest'
import type { NamespaceFilter } from '../../src/domain/start-request.ts'
import { compareClusters, type Selects } from '../support/compare.ts'
import { fingerprints } from '../support/fingerprints.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { seedData } from '../support/seed-data.ts'
import { selectedNames, untilApplied } from '../support/until-applied.ts'
import { createWorkload } from '../support/workload.ts'
import { archiveDatabase } from '../support/workload-world.ts'

/**
 * Syncs with filters of every shape run under the random workload, which writes to selected and to other collections and renames
 * collections out of and into the filter.
 */

const pair = pairedSets()
const seed = process.env['TANDEM_SEED'] ?? 'filter'

interface Case {
  what: string
  includeNamespaces?: NamespaceFilter[]
  excludeNamespaces?: NamespaceFilter[]
  /** The same filter as a predicate. */
  selects: Selects
  instances?: string[]
  /** Whether an instance is killed during the sync and continues from what it stored. */
  killed?: boolean
}

const cases: Case[] = [
  {
    what: 'databases included by name and by pattern, with DDL and renames across databases',
    includeNamespaces: [{ database: 'harbour' }, { databaseRegex: { pattern: '^L E D', options: 'xi' } }],
    selects: (database) => database === 'harbour' || database === 'ledger',
  },
  {
    what: 'databases excluded by name and by pattern, with DDL and renames across databases',
    excludeNamespaces: [{ database: 'people' }, { databaseRegex: { pattern: '^x-|^climate$' } }],
    selects: (database) => ['harbour', 'ledger', archiveDatabase].includes(database),
    killed: true,
  },
  {
    what: 'collections included by name and by pattern, some excluded again, by two instances',
    includeNamespaces: [
      { database: 'harbour', collectionsRegex: { pattern: '^(alpha|gamma\\.|delta ü)', options: 'i' } },
      { database: 'ledger', collections: ['beta', 'not there yet'] },
      { database: archiveDatabase },
    ],
    excludeNamespaces: [
      { databaseRegex: { pattern: 'bour$' }, collections: ['alpha'] },
      { database: archiveDatabase, collectionsRegex: { pattern: ' ' } },
    ],
    selects: (database, name) =>
      ['harbour.gamma.one', 'harbour.Delta Ünï', 'ledger.beta', 'ledger.not there yet'].includes(
        `${database}.${name}`,
      ) ||
      (database === archiveDatabase && !name.includes(' ')),
    instances: ['one', 'two'],
  },
  {
    what: 'collections excluded by pattern from every database',
    excludeNamespaces: [
      { databaseRegex: { pattern: '' }, collectionsRegex: { pattern: 'A$', options: 'si' } },
      { database: 'climate' },
    ],
    selects: (database, name) => database !== 'climate' && !/a$/i.test(name),
  },
]

test.each(cases.map((one) => [one.what, one] as const))(
  '4.5: %s; other collections do not change on the destination',
  async (_what, { includeNamespaces, excludeNamespaces, selects, instances = ['one'], killed = false }) => {
    const { source, destination, sourceClient, destinationClient } = pair
    const others: Selects = (database, name) => !selects(database, name)
    await seedData(source.uri, seed, 0.05)
    // A collection that cannot be synced is allowed if it is not selected.
    await sourceClient.db('climate').createCollection('weather', { timeseries: { timeField: 'at' } })
    for (const [database, name] of [
      ['people', 'alpha'],
      ['harbour', 'alpha'],
      ['ledger', 'delta'],
      ['climate', 'alpha'],
    ] as const) {
      if (selects(database, name)) continue
      await destinationClient
        .db(database)
        .collection<{ _id: number }>(name)
        .insertMany([{ _id: 2 }, { _id: 1 }])
      await destinationClient.db(database).collection(name).createIndex({ other: 1 }, { unique: true, sparse: true })
      if (selects(database, 'view a')) continue
      await destinationClient.db(database).createCollection('view a', { viewOn: name, pipeline: [] })
    }
    const before = await fingerprints(destination.uri, () => true)
    expect(Object.keys(before)).not.toEqual([])

    const workload = createWorkload({ uri: source.uri, seed, ddl: true, transactions: true })
    await workload.runSteps(20)
    const running = await startInstances(instances, { cluster0: source.uri, cluster1: destination.uri })
    try {
      const start = { source: 'cluster0', destination: 'cluster1', includeNamespaces, excludeNamespaces }
      expectAccepted(await running.post('start', start))
      await workload.runSteps(60)
      if (killed) {
        await running.kill9('one')
        await running.start('one')
      }
      await workload.runSteps(30)
      await sourceClient.db('ledger').collection('not there yet').insertOne({ came: 'later' })
      await running.allReach(({ canCommit }) => canCommit, 'ready to commit')
      await workload.runSteps(40)
      // A commit is aborted if it meets a rename out of or into the filter.
      await untilApplied(pair, selectedNames(selects))
      await running.allReach(({ canCommit }) => canCommit, 'ready to commit again')
      const writing = new AbortController()
      const unselected = sourceClient.db('climate').collection('alpha')
      const unselectedWrites = (async () => {
        while (!writing.signal.aborted) await unselected.insertOne({ at: new Date() })
      })()
      expectAccepted(await running.post('commit'))
      await running.allReach(({ state }) => state === 'COMMITTED', 'committed').finally(() => writing.abort())
      await unselectedWrites
    } finally {
      await running.stop()
    }
    const { differences, documents } = await compareClusters(source.uri, destination.uri, { selects })
    expect(differences).toEqual([])
    expect(documents).toBeGreaterThan(20)
    expect(await fingerprints(destination.uri, others)).toEqual(before)
  },
)
