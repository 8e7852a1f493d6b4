import { afterEach, expect, test } from 'vitest'
import { accepted, canCommit, commit, commitAgain, failed } from '../support/commits.ts'
import { comparePlaced, contentOf } from '../support/compare-placed.ts'
import { expectAccepted } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { Random } from '../support/random.ts'
import type { Tandem } from '../support/tandem-process.ts'

/** Single collections that get other names on the destination: `namespaceRemap` with `collection`. */

interface Row {
  _id: number
  n?: number
  at?: Date
}

const pair = pairedSets()
let tandem: Tandem | undefined
afterEach(() => tandem?.stop())

const rename = (from: string, to: string) => {
  const [one = '', ...ofFrom] = from.split('.')
  const [other = '', ...ofTo] = to.split('.')
  return { from: { database: one, collection: ofFrom.join('.') }, to: { database: other, collection: ofTo.join('.') } }
}
const rows = (count: number, n = 0): Row[] =>
  Array.from({ length: count }, (_, _id) => ({ _id, n: n + _id, at: new Date(2_000_000_000_000 + _id) }))
const directions = { source: 'cluster0', destination: 'cluster1' }
const start = async (body: object): Promise<Tandem> => {
  tandem = await pair.startInstance()
  expect(await tandem.post('start', { ...directions, ...body })).toEqual(accepted)
  return tandem
}
const source = (database: string, collection: string) => pair.sourceClient.db(database).collection<Row>(collection)

const names = { 'a.b': 'c.d', 'a.e': 'a.f' }
const body = {
  namespaceRemap: Object.entries(names).map(([from, to]) => rename(from, to)),
  includeNamespaces: [{ database: 'a' }, { database: 'c', collections: ['k', 'l', 'v'] }],
  excludeNamespaces: [{ database: 'a', collections: ['f'] }],
}
const isSynced = (name: string): boolean =>
  (name.startsWith('a.') && name !== 'a.f') || ['c.k', 'c.l', 'c.v'].includes(name)

/** What the sync must leave alone on the destination: all of it has a name that belongs to no selected collection. */
const foreign = ['c.other', 'a.b']
const seedForeign = async (): Promise<void> => {
  for (const name of foreign) {
    const [database = '', collection = ''] = name.split('.')
    await pair.destinationClient.db(database).collection<Row>(collection).insertMany(rows(7, 500))
  }
}
const foreignContent = () => contentOf(pair.destinationClient, (name) => (foreign.includes(name) ? name : null))

async function seed(): Promise<void> {
  const { sourceClient } = pair
  for (const [database, collection] of [
    ['a', 'b'],
    ['a', 'e'],
    ['a', 'x'],
    ['a', 'y'],
    ['c', 'k'],
    ['c', 'l'],
  ] as const)
    await source(database, collection).insertMany(rows(300))
  await source('a', 'b').createIndex({ n: 1 }, { unique: true, name: 'unique' })
  await source('a', 'b').createIndex({ at: 1 }, { expireAfterSeconds: 100_000, name: 'expiring' })
  // Neither is synced: their names on the destination belong to others.
  await source('c', 'd').insertMany(rows(3, 900))
  await source('a', 'f').insertMany(rows(4, 900))
  await sourceClient
    .db('c')
    .createCollection('v', { viewOn: 'k', pipeline: [{ $lookup: { from: 'l', as: 'l', pipeline: [] } }] })
}

/** Changes documents of these collections of the source. */
async function change(round: number, collections: readonly (readonly [string, string])[], steps = 60): Promise<void> {
  const next = new Random(round)
  for (let step = 0; step < steps; step++) {
    const [database, name] = collections[next.int(0, collections.length - 1)] as readonly [string, string]
    const collection = source(database, name)
    const _id = next.int(0, 400)
    const kind = next.int(0, 3)
    if (kind === 0) await collection.deleteOne({ _id })
    else await collection.updateOne({ _id }, { $set: { n: 100_000 * round + step } }, { upsert: kind === 1 })
  }
}

const everywhere = [
  ['a', 'b'],
  ['a', 'e'],
  ['a', 'x'],
  ['c', 'k'],
] as const

test('collections arrive under other names through renames, drops, a kill and a commit, and nothing else changes', async () => {
  const { sourceClient } = pair
  await seed()
  await seedForeign()
  const before = await foreignContent()
  const first = await start(body)
  await change(1, everywhere)
  await canCommit(first)
  await source('a', 'b').createIndex({ at: -1, n: 1 }, { name: 'later' })
  await sourceClient.db('a').command({ collMod: 'b', index: { name: 'expiring', expireAfterSeconds: 200_000 } })
  await sourceClient.db('a').command({ collMod: 'b', validator: { n: { $exists: true } }, validationLevel: 'moderate' })
  // Within the database of the destination that has the rest, both ways.
  await sourceClient.db('a').renameCollection('e', 'g')
  await sourceClient.db('a').renameCollection('y', 'e')
  await change(2, everywhere)
  // Out of the name that is placed elsewhere, and back into it. An exchange of names needs both at once.
  await sourceClient.db('a').renameCollection('b', 'was_b')
  await sourceClient.db('a').renameCollection('x', 'b')
  await sourceClient.db('a').renameCollection('was_b', 'x')
  await change(3, everywhere)
  await first.kill9()
  await change(4, everywhere)
  await source('a', 'x').drop()
  await source('a', 'x').insertMany(rows(40, 7_000))
  tandem = await pair.startInstance()
  expect(await tandem.post('start', { ...directions, ...body })).toEqual(accepted)
  await change(5, everywhere)
  await canCommit(tandem)
  const shown = (await (await fetch(`${tandem.url}/api/v1/collections`)).json()) as { collections: object[] }
  expect(shown.collections).toContainEqual(expect.objectContaining({ namespace: 'a.b', destinationNamespace: 'c.d' }))

  await source('a', 'b').drop()
  await source('a', 'b').insertMany(rows(50, 3_000))
  await source('a', 'b').createIndex({ n: 1 }, { unique: true })
  await source('a', 'x')
    .aggregate([{ $out: 'b' }])
    .toArray()
  await change(6, everywhere)
  // The destination's c keeps a.b, and whatever does not belong to the sync.
  await sourceClient.db('c').dropDatabase()
  await change(7, everywhere)
  await canCommit(tandem)
  await sourceClient.db('a').dropDatabase()
  await source('a', 'b').insertMany(rows(20, 100))
  await source('a', 'z').insertMany(rows(20, 100))
  await commitAgain(tandem)

  expect(await comparePlaced(pair, names, isSynced)).toEqual([])
  expect(await foreignContent()).toEqual(before)
  expect(await pair.destinationClient.db('c').collection('d').countDocuments()).toBe(
    await source('a', 'b').countDocuments(),
  )
})

test('a destination with data converges, and only under the names of the sync', async () => {
  await seed()
  await seedForeign()
  const { destinationClient } = pair
  const there = destinationClient.db('c').collection<Row>('d')
  await there.insertMany(rows(350, 1))
  await there.createIndex({ n: -1 }, { name: 'extra' })
  await destinationClient.db('a').collection<Row>('f').insertMany(rows(2, 40))
  await destinationClient.db('a').collection<Row>('gone').insertMany(rows(2))
  const before = await foreignContent()
  const refused = await pair.startInstance()
  tandem = refused
  expect(await refused.post('start', { ...directions, ...body })).toMatchObject({
    body: { error: 'DestinationNotEmpty', errorDescription: expect.stringMatching(/c\.d \(on the source: a\.b\)|a\./) },
  })
  expect(await refused.post('start', { ...directions, ...body, existingData: 'converge' })).toEqual(accepted)
  await change(11, everywhere)
  await commit(refused)
  expect(await comparePlaced(pair, names, isSynced)).toEqual([])
  expect(await foreignContent()).toEqual(before)
})

test('requests that would lose something are refused, and a later view ends the sync by name', async () => {
  const { sourceClient } = pair
  await seed()
  const instance = await pair.startInstance()
  tandem = instance
  const refused = async (more: object, error: string, description: RegExp): Promise<void> => {
    expect(await instance.post('start', { ...directions, ...body, ...more })).toMatchObject({
      body: { error, errorDescription: expect.stringMatching(description) },
    })
  }
  const only = (from: string, to: string) => ({ namespaceRemap: [rename(from, to)] })
  await refused(
    { includeNamespaces: [{ database: 'a' }, { database: 'c' }] },
    'InvalidRequest',
    /to\.collection: .*c\.d of the source too/,
  )
  await refused({ excludeNamespaces: undefined }, 'InvalidRequest', /\[1\]\.to\.collection: .* a\.f of the source too/)
  await refused(only('c.d', 'a.q'), 'InvalidRequest', /do not select c\.d/)
  await refused(only('c.v', 'a.f'), 'InvalidRequest', /c\.v is a view/)
  await refused(only('c.k', 'a.f'), 'UnsupportedCollection', /c\.v is a view that reads c\.k/)
  await refused(only('c.l', 'a.f'), 'UnsupportedCollection', /c\.v is a view that reads c\.l/)
  await refused(only('A.b', 'c.d'), 'InvalidRequest', /do not select A\.b/)
  await refused(only('a.b', 'C.d'), 'InvalidRequest', /differ only in case/)
  await refused({ reversible: true }, 'ReversibleNotSupported', /namespaceRemap/)
  await refused({ enableUserWriteBlocking: 'sourceAndDestination' }, 'WriteBlockingNotSupported', /Namespaces/)

  expect(await instance.post('start', { ...directions, ...body })).toEqual(accepted)
  await canCommit(instance)
  await sourceClient
    .db('a')
    .createCollection('seen', { viewOn: 'x', pipeline: [{ $unionWith: { coll: 'b', pipeline: [] } }] })
  expect((await failed(instance)).failure).toMatchObject({
    error: 'UnsupportedCollection',
    errorDescription: expect.stringMatching(/a\.seen is a view that reads a\.b/),
  })
  await sourceClient.db('a').collection('seen').drop()
  expect(await instance.post('resume')).toEqual(accepted)
  await commit(instance)
  expect(await comparePlaced(pair, names, isSynced)).toEqual([])
})

test('a rename that is not applied yet when the filter changes loses nothing, whether its collection stays included or not', async () => {
  const { sourceClient } = pair
  await seed()
  await seedForeign()
  const instance = await start(body)
  await canCommit(instance)
  expect(await instance.post('pause')).toEqual(accepted)
  await instance.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 60, what: 'PAUSED' })
  const before = await foreignContent()
  // a.b and a.x exchange their names, and a.e takes a name that the new filter excludes.
  await sourceClient.db('a').renameCollection('b', 'aside')
  await sourceClient.db('a').renameCollection('x', 'b')
  await sourceClient.db('a').renameCollection('aside', 'x')
  await sourceClient.db('a').renameCollection('y', 'q')
  await change(21, everywhere)
  const { includeNamespaces, excludeNamespaces } = body
  const filter = {
    includeNamespaces,
    excludeNamespaces: [...excludeNamespaces, { database: 'a', collections: ['q', 'e'] }],
  }
  expect(await instance.post('filter', filter)).toEqual(accepted)
  expect(await instance.post('resume')).toEqual(accepted)
  await change(22, everywhere)
  await commitAgain(instance)
  const isIncluded = (name: string): boolean => isSynced(name) && name !== 'a.q' && name !== 'a.e'
  expect(await comparePlaced(pair, { 'a.b': 'c.d' }, isIncluded)).toEqual([])
  expect(await foreignContent()).toEqual(before)
})

/** The names of `a` in the random test. Two are placed in `c`, one under another name in `a`. */
const placed = { 'a.b': 'c.d', 'a.e': 'c.h', 'a.g': 'a.f' }
const pool = ['b', 'e', 'g', 'x', 'y', 'z']

/** Renames, exchanges, replaces, drops and creates collections of `a`, and moves some in from `c`. */
async function changeDefinitions(next: Random, round: number): Promise<void> {
  const { sourceClient } = pair
  const db = sourceClient.db('a')
  const present = (await db.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name)
  const one = next.pick(present.length > 0 ? present : ['x'])
  const other = next.pick(pool)
  const kind = next.int(0, 6)
  if (!present.includes(one) || kind === 0) {
    if (!present.includes(other)) await db.createCollection(other)
    await source('a', other).createIndex({ [`of_${round}`]: 1, n: 1 })
    await source('a', other).bulkWrite(
      rows(60, round * 10_000).map(({ _id, ...fields }) => ({
        updateOne: { filter: { _id }, update: { $set: fields }, upsert: true },
      })),
    )
  } else if (kind === 1) await source('a', one).drop()
  else if (kind === 2 && one !== other)
    await source('a', one)
      .aggregate([{ $out: other }])
      .toArray()
      // The target keeps its indexes. If one of them is unique, it can reject the documents, and then nothing changes.
      .catch((error) => {
        if (error.code !== 11_000) throw error
      })
  else if (kind === 3 && one !== other && present.includes(other)) {
    await db.renameCollection(one, 'aside')
    await db.renameCollection(other, one)
    await db.renameCollection('aside', other)
  } else if (kind === 4) {
    await sourceClient
      .db('c')
      .collection<Row>('k')
      .insertOne({ _id: 1_000 + round, n: round })
    await sourceClient.db('admin').command({ renameCollection: 'c.k', to: `a.${other}`, dropTarget: true })
  } else if (one !== other) await db.renameCollection(one, other, { dropTarget: true })
}

test.each([1, 2, 3])(
  'two instances follow random renames of placed collections, also across a kill (seed %i)',
  async (number) => {
    const next = new Random(`placed ${number}`)
    await seed()
    await pair.sourceClient.db('c').collection('v').drop()
    await seedForeign()
    const before = await foreignContent()
    const request = {
      namespaceRemap: Object.entries(placed).map(([from, to]) => rename(from, to)),
      includeNamespaces: [{ database: 'a' }, { database: 'c', collections: ['k', 'l'] }],
      excludeNamespaces: [{ database: 'a', collections: ['f'] }],
    }
    const touched = [...pool.map((name) => ['a', name] as const), ['c', 'k'] as const]
    const both = await pair.startInstances('one', 'two')
    try {
      expectAccepted(await both.post('start', { ...directions, ...request }))
      const member = (): Tandem => [...both.members.values()][0] as Tandem
      for (let round = 1; round <= 24; round++) {
        await changeDefinitions(next, round)
        await change(100 * number + round, touched, 15)
        if (round % 8 === 0) await canCommit(member())
        if (round !== 13) continue
        const { coordinatorID } = await member().progress()
        await both.kill9(coordinatorID ?? '')
        await both.start(coordinatorID ?? '')
      }
      await commitAgain(...both.members.values())
    } finally {
      await both.stop()
    }
    const isIncluded = (name: string): boolean =>
      (name.startsWith('a.') && name !== 'a.f') || name === 'c.k' || name === 'c.l'
    expect(await comparePlaced(pair, placed, isIncluded)).toEqual([])
    expect(await foreignContent()).toEqual(before)
  },
)
