import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest'
import { idOfEveryType, insertRaw, nastyDocument } from '../support/bson-values.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { Random } from '../support/random.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

/** A source of 5.0 to a destination of 6.0: its documents are followed, any change of a definition is a named failure. */

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
    const capped = pair.sourceClient.db('archive').collection('capped')
    const collated = pair.sourceClient.db('archive').collection('collated')
    for (let round = 0; round < 40; round++) {
      await workload.runSteps(3)
      await capped.insertOne({ round })
      await collated.deleteMany({ n: round })
      await collated.insertMany([{ _id: `ROUND${round}` as never }, { _id: `x${round}` as never }])
    }
    await started.allReach(({ canCommit }) => canCommit, 'canCommit', 60)
    await workload.runSteps(30)
    expectAccepted(await started.post('commit'))
    await started.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 60)
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  })
})

describe('definitions of a source of 5.0', () => {
  const app = () => pair.sourceClient.db('app')
  const told: [what: string, change: () => Promise<unknown>, description: RegExp][] = [
    ['a drop', () => app().collection('things').drop(), /app\.things had a drop/],
    ['a rename', () => app().collection('things').rename('moved'), /app\.things had a rename/],
    ['dropDatabase', () => app().dropDatabase(), /app/],
    [
      'a collection dropped and created again under its name',
      async () => {
        await app().collection('things').drop()
        await app()
          .collection('things')
          .insertMany([{ anew: 1 }, { anew: 2 }])
      },
      /app\.things had a drop/,
    ],
    [
      'a collection replaced by $out',
      () =>
        app()
          .collection('things')
          .aggregate([{ $out: 'others' }])
          .toArray(),
      /app\..*(rename|created|appeared)/,
    ],
    ['convertToCapped', () => app().command({ convertToCapped: 'things', size: 10_000 }), /app\..*(rename|created)/],
    [
      'a collection created by an insert',
      () => app().collection('new').insertOne({}),
      /app\.new (appeared|was created)/,
    ],
    ['an empty collection created', () => app().createCollection('new'), /app\.new was created/],
    ['new options', () => app().command({ collMod: 'things', validator: { a: 1 } }), /options of app\.things/],
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

  it.each(told)('%s is a failure that names it', async (_what, change, description) => {
    const running = await begin()
    await change()
    const { failure } = await running.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'FAILED' })
    expect(failure).toMatchObject({ error: 'UnsupportedChange', errorDescription: expect.stringMatching(description) })
    expect(failure?.errorDescription).toMatch(/older than 6\.0/)
    expect(await pair.destinationClient.db('app').collection('things').countDocuments()).toBe(100)
  })

  it.each([
    [
      'an index created',
      () => app().collection('things').createIndex({ b: 1 }, { name: 'b' }),
      () => app().collection('things').dropIndex('b'),
      /index b of/,
    ],
    [
      'an index dropped',
      () => app().collection('things').dropIndex('a'),
      () => app().collection('things').createIndex({ a: 1 }, { name: 'a' }),
      /index a of/,
    ],
  ] as const)(
    '%s is a failure at commit, with and without the verifier, and may be undone',
    async (_what, change, undo, description) => {
      for (const enabled of [true, false]) {
        const running = await begin({ verification: { enabled } })
        await change()
        await running.post('commit')
        const { failure } = await running.waitFor(({ state }) => state === 'FAILED', {
          timeoutSeconds: 30,
          what: 'FAILED',
        })
        expect(failure).toMatchObject({
          error: 'UnsupportedChange',
          errorDescription: expect.stringMatching(description),
        })
        await undo()
        await running.post('resume')
        await running.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'COMMITTED' })
        expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
        await running.stop()
        await pair.destinationClient.db('app').dropDatabase()
        await pair.destinationClient.db('tandem_internal').dropDatabase()
      }
    },
  )

  it('a view made or changed meanwhile is as on the source after the commit', async () => {
    await app().createCollection('view', { viewOn: 'things', pipeline: [] })
    const running = await begin()
    await app().command({ collMod: 'view', viewOn: 'things', pipeline: [{ $match: { a: 1 } }] })
    await app().createCollection('another', { viewOn: 'things', pipeline: [] })
    await running.post('commit')
    await running.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'COMMITTED' })
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  })
})
