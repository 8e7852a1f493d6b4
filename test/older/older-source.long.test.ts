import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { idOfEveryType, insertRaw, nastyDocument } from '../support/bson-values.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { Random } from '../support/random.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'
import { untilApplied } from '../support/until-applied.ts'
import { createWorkload } from '../support/workload.ts'

/**
 * A sync from a source of 5.0 to a destination of 6.0 follows changes of documents and of definitions, although most
 * changes of definitions have no event.
 */

const pair = pairedSets({ source: { version: '5.0' } })
let tandem: Tandem | null = null
let instances: Instances | null = null

afterEach(async () => {
  await tandem?.stop()
  tandem = null
  await instances?.stop()
  instances = null
})

const clusters = () => ({ cluster0: pair.source.uri, cluster1: pair.destination.uri })

async function seed(): Promise<void> {
  const db = pair.sourceClient.db('archive')
  const documents = Array.from({ length: 6_000 }, (_, at) => ({ _id: at as never, n: at % 100, u: `u${at}` }))
  await db.collection('bulk').insertMany(documents)
  await db.collection('bulk').createIndexes([
    { key: { u: 1 }, name: 'u', unique: true },
    { key: { n: 1 }, name: 'n', hidden: true },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 100_000 },
    { key: { u: 'text' }, name: 'text' },
    { key: { n: 'hashed' }, name: 'hashed' },
  ])
  const random = new Random('older')
  for (const [at, make] of idOfEveryType.entries()) {
    await insertRaw(db, `type ${at}`, [nastyDocument(random, make(random), [['u', `every${at}`]])])
  }
  await db.createCollection('capped', { capped: true, size: 100_000, max: 300 })
  await db.collection('capped').insertMany(documents.slice(0, 500))
  await db.createCollection('collated', { collation: { locale: 'en', strength: 2 } })
  await db.collection('collated').insertMany(documents.slice(0, 300).map(({ u, n }) => ({ _id: u as never, n })))
  await db.createCollection('validated', { validator: { n: { $gte: 50 } }, validationLevel: 'moderate' })
  await db.createCollection('view', { viewOn: 'bulk', pipeline: [{ $match: { n: 1 } }] })
  await db.createCollection('empty')
}

const workloadOf = (number: number) =>
  createWorkload({ uri: pair.source.uri, seed: number, ddl: false, transactions: true })

describe('a source of 5.0', () => {
  it.each([1, 2])(
    'is copied and followed under a workload and a kill, and compares equal (seed %i)',
    async (number) => {
      await seed()
      const workload = workloadOf(number)
      await workload.runSteps(30)
      tandem = await startTandem(clusters())
      await expect
        .poll(() => tandem?.progress().catch(() => null), { timeout: 30_000 })
        .toMatchObject({ state: 'IDLE' })
      await startSync(tandem)
      await workload.runSteps(100)
      await tandem.kill9()
      tandem = await startTandem(clusters())
      await workload.runSteps(150)
      await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
      await workload.runSteps(80)
      expect(await tandem.post('commit')).toMatchObject({ status: 200 })
      await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
      const { differences, documents } = await compareBoth(pair.source.uri, pair.destination.uri)
      expect(differences).toEqual([])
      expect(documents).toBeGreaterThan(6_000)
    },
  )

  it('is shared by several instances, capped and collated collections among them', async () => {
    await seed()
    const workload = workloadOf(3)
    await workload.runSteps(20)
    instances = await startInstances(['a', 'b', 'c'], clusters())
    const started = instances
    await vi.waitFor(() => started.allReach(({ state }) => state === 'IDLE', 'IDLE'), { timeout: 30_000 })
    expectAccepted(await started.post('start', { source: 'cluster0', destination: 'cluster1' }))
    const archive = pair.sourceClient.db('archive')
    const capped = archive.collection('capped')
    for (let round = 0; round < 40; round++) {
      await workload.runSteps(3)
      if (round === 20) {
        await archive.collection('collated').rename('collated again')
        await archive.collection('bulk').rename('bulky')
        await archive.collection('new').insertMany([{ round }, { another: round }])
        await archive.dropCollection('empty')
      }
      const collated = archive.collection(round < 20 ? 'collated' : 'collated again')
      await capped.insertOne({ round })
      await collated.deleteMany({ n: round })
      await collated.insertMany([{ _id: `ROUND${round}` as never }, { _id: `x${round}` as never }])
    }
    await started.allReach(({ canCommit }) => canCommit, 'canCommit', 60)
    await workload.runSteps(30)
    await untilApplied(pair, [['archive', 'bulky']])
    await started.allReach(({ canCommit }) => canCommit, 'canCommit', 60)
    expectAccepted(await started.post('commit'))
    await started.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 60)
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  })
})

describe('definitions of a source of 5.0', () => {
  const app = () => pair.sourceClient.db('app')
  const changes: [what: string, change: () => Promise<unknown>][] = [
    ['a drop', () => app().collection('things').drop()],
    ['a rename', () => app().collection('things').rename('moved')],
    ['dropDatabase', () => app().dropDatabase()],
    [
      'a collection dropped and created again under its name',
      async () => {
        await app().collection('things').drop()
        await app()
          .collection('things')
          .insertMany([{ again: 1 }, { again: 2 }])
      },
    ],
    [
      'a collection replaced by $out',
      () =>
        app()
          .collection('things')
          .aggregate([{ $out: 'others' }])
          .toArray(),
    ],
    ['convertToCapped', () => app().command({ convertToCapped: 'things', size: 10_000 })],
    ['a collection created by an insert', () => app().collection('new').insertOne({})],
    ['an empty collection created', () => app().createCollection('new')],
    ['new options', () => app().command({ collMod: 'things', validator: { a: 1 } })],
    ['an index created', () => app().collection('things').createIndex({ b: 1 }, { name: 'b' })],
    ['an index dropped', () => app().collection('things').dropIndex('a')],
  ]

  beforeEach(async () => {
    await app()
      .collection('things')
      .insertMany(Array.from({ length: 100 }, (_, a) => ({ a })))
    await app().collection('others').insertOne({})
    await app().collection('things').createIndex({ a: 1 }, { name: 'a' })
  })

  async function begin(overrides: Record<string, unknown> = {}): Promise<Tandem> {
    tandem = await startTandem(clusters())
    await expect.poll(() => tandem?.progress().catch(() => null), { timeout: 30_000 }).toMatchObject({ state: 'IDLE' })
    await startSync(tandem, overrides)
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'canCommit' })
    return tandem
  }

  /** Commits. Repeats a commit that was aborted because a new collection had to be converged first. */
  async function commitAtLast(running: Tandem): Promise<void> {
    let ended: string | undefined
    while (ended !== 'COMMITTED') {
      await running.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
      const { status } = await running.post('commit')
      if (status !== 200) continue
      const hasEnded = ({ state }: Progress): boolean => state === 'COMMITTED' || state === 'RUNNING'
      const progress = await running.waitFor(hasEnded, { timeoutSeconds: 60, what: 'COMMITTED or aborted' })
      ended = progress.state
      if (ended === 'RUNNING') expect(progress.warnings?.join()).toMatch(/the commit was aborted/)
    }
  }

  it.each(changes)('%s is followed while a client writes, and both clusters are equal', async (what, change) => {
    const running = await begin({ verification: { enabled: what !== 'an index created' } })
    const writing = new AbortController()
    const writes = (async () => {
      const others = app().collection('others')
      // A write fails if its database is dropped at the same time.
      for (let n = 0; !writing.signal.aborted; n++) await others.insertOne({ n }).catch(() => {})
    })()
    await change()
    writing.abort()
    await writes
    await commitAtLast(running)
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  })

  it('a collection that leaves the filter and comes back is converged', async () => {
    const running = await begin({ includeNamespaces: [{ database: 'app', collections: ['things'] }] })
    await app().collection('things').rename('away')
    await app()
      .collection('away')
      .updateMany({}, { $set: { changed: true } })
    await app().collection('away').rename('things')
    await app()
      .collection('things')
      .insertOne({ _id: 'marker' as never })
    const things = pair.destinationClient.db('app').collection('things')
    await expect.poll(() => things.findOne({ _id: 'marker' as never }), { timeout: 60_000 }).not.toBeNull()
    await commitAtLast(running)
    const selects = (_: string, name: string): boolean => name === 'things'
    expect((await compareBoth(pair.source.uri, pair.destination.uri, { selects })).differences).toEqual([])
  })

  it('no document is lost when the filter is replaced before renames are followed', async () => {
    const named = (...collections: string[]) => ({ includeNamespaces: [{ database: 'app', collections }] })
    const running = await begin(named('things', 'others'))
    expect(await running.post('pause')).toMatchObject({ status: 200 })
    const changed = (name: string) =>
      app()
        .collection(name)
        .updateMany({}, { $set: { changed: true } })
    await app().collection('things').rename('away')
    await changed('away')
    await app().collection('away').rename('things')
    await app().collection('others').rename('moved')
    await changed('moved')
    // The new filter selects every name that the collections have had, except `others`.
    expect(await running.post('filter', named('things', 'away', 'moved'))).toMatchObject({ status: 200 })
    expect(await running.post('resume')).toMatchObject({ status: 200 })
    await commitAtLast(running)
    const selects = (_: string, name: string): boolean => ['things', 'away', 'moved'].includes(name)
    expect((await compareBoth(pair.source.uri, pair.destination.uri, { selects })).differences).toEqual([])
  })

  it('a view that is created or changed during the sync is equal on both clusters after the commit', async () => {
    await app().createCollection('view', { viewOn: 'things', pipeline: [] })
    const running = await begin()
    await app().command({ collMod: 'view', viewOn: 'things', pipeline: [{ $match: { a: 1 } }] })
    await app().createCollection('another', { viewOn: 'things', pipeline: [] })
    await running.post('commit')
    await running.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'COMMITTED' })
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  })
})
