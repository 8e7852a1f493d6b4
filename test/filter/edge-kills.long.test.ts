import type { Db } from 'mongodb'
import { expect, test, vi } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

/** The only instance dies while it prepares the convergence of a collection that was renamed to a name that the filter includes. */

const pair = pairedSets()
const zoo = (): Db => pair.sourceClient.db('zoo')
const rows = Array.from({ length: 2_000 }, (_, n) => ({ n }))
const ready = { timeoutSeconds: 60, what: 'canCommit' }

test.each(['replan', 'replanCollections', 'replanDefinitions', 'replanEnd'])(
  'an instance that is killed at %s continues by itself, and the selected collections are equal',
  async (crashAt) => {
    await zoo().collection('cage').insertMany(rows)
    await zoo().collection('wild').insertMany(rows)
    const clusters = { cluster0: pair.source.uri, cluster1: pair.destination.uri, id: 'a' }
    await using faulty = await startTandem({ ...clusters, faults: { crashAt } })
    await vi.waitFor(() => faulty.progress(), { timeout: 30_000 })
    await startSync(faulty, { includeNamespaces: [{ database: 'zoo', collections: ['cage', 'tame'] }] })
    await faulty.waitFor(({ canCommit }) => canCommit, ready)
    await zoo().collection('wild').rename('tame')
    await zoo().collection('cage').rename('tmp')
    await zoo()
      .collection('tmp')
      .updateMany({}, { $set: { changed: true } })
    await zoo().collection('tmp').rename('cage')
    await vi.waitFor(() => expect(faulty.isRunning()).toBe(false), { timeout: 30_000 })

    await zoo()
      .collection('tame')
      .deleteMany({ n: { $lt: 10 } })
    await using last = await startTandem(clusters)
    const tame = pair.destinationClient.db('zoo').collection('tame')
    await vi.waitFor(async () => expect(await tame.countDocuments()).toBe(1_990), { timeout: 60_000 })
    await zoo().collection('cage').insertOne({ after: true })
    const cage = pair.destinationClient.db('zoo').collection('cage')
    await vi.waitFor(async () => expect(await cage.countDocuments()).toBe(2_001), { timeout: 60_000 })
    await last.waitFor(({ canCommit }) => canCommit, ready)
    expect(await last.post('commit')).toMatchObject({ status: 200 })
    await last.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
    const selects = (_: string, name: string): boolean => ['cage', 'tame'].includes(name)
    expect((await compareBoth(pair.source.uri, pair.destination.uri, { selects })).differences).toEqual([])
    expect(await convergencesOf(pair.destinationClient)).toBeLessThanOrEqual(2)
  },
)
