import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import { type ChangeEvent, parseChangeEvent } from '../../src/domain/change-event.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import type { NamespaceFilters } from '../../src/domain/namespace-filter.ts'
import type { NamespaceFilter } from '../../src/domain/start-request.ts'
import { readChangeStream, type StreamPosition } from '../../src/mongo/change-stream.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { createWorkload } from '../support/workload.ts'
import { workloadCollections, workloadDatabases } from '../support/workload-world.ts'
import { testContext } from './clusters.ts'
import { oneSet } from './one-set.ts'

const one = oneSet()
let start: StreamPosition
let end = 0n
let everything: ChangeEvent[] = []

const include = (...includeNamespaces: NamespaceFilter[]): NamespaceFilters => ({
  includeNamespaces,
  excludeNamespaces: null,
})
const select = (filters: NamespaceFilters): Selection => new Selection(one.cluster, filters)

async function eventsOf(filters: NamespaceFilters, from = start, batchSize = 0): Promise<ChangeEvent[]> {
  const events: ChangeEvent[] = []
  let position = from
  do {
    const content = { selected: select(filters).events, awaitMS: () => 20 }
    const context = testContext()
    for await (const batch of readChangeStream(one.cluster, position, context, content)) {
      events.push(...batch.events.map(parseChangeEvent))
      position = batch.position
      if (position.time >= end || (batchSize > 0 && batch.events.length >= batchSize)) break
    }
    if (context.retried.length > 0) throw context.retried[0]?.error
  } while (position.time < end)
  return events
}

const shown = ({ time, operationType, database, collection, to }: ChangeEvent): string =>
  [time, operationType, database, collection, to?.collection].join(' ')

/** Returns the events whose namespaces the filter selects. */
async function expectedOf(filters: NamespaceFilters): Promise<ChangeEvent[]> {
  const selection = select(filters)
  const expected: ChangeEvent[] = []
  for (const event of everything) {
    const { operationType, database, collection, to } = event
    const names = [collection, ...(to ? [to.collection] : [])]
    const selected = await Promise.all(names.map((name) => selection.selects(database, name)))
    const isSelectedDrop = operationType === 'dropDatabase' && (await selection.databases([database])).length > 0
    if (isSelectedDrop || selected.includes(true)) expected.push(event)
  }
  return expected
}

beforeAll(async () => {
  await appendOplogNote(one.cluster, 'test')
  start = { kind: 'time', time: one.cluster.latest + 1n }
  const workload = createWorkload({ uri: one.set.uri, seed: 'selection', ddl: true, transactions: true })
  await workload.runSteps(150)
  for (const name of ['alpha', 'beta', 'people']) {
    const db = one.client.db(name)
    await db.createCollection('view', { viewOn: 'gone', pipeline: [] })
    await db.collection('alpha').insertOne({ n: 1 })
    await db
      .collection('alpha')
      .aggregate([{ $out: 'out' }])
      .toArray()
    await db.renameCollection('out', 'gamma.one', { dropTarget: true })
    await db.dropDatabase()
  }
  await appendOplogNote(one.cluster, 'test')
  end = one.cluster.latest
  await appendOplogNote(one.cluster, 'test')
  everything = await eventsOf({ includeNamespaces: null, excludeNamespaces: null })
})

describe('the condition of the change stream and the selection by names', () => {
  const pattern = fc.constantFrom(
    { pattern: '^(?:al|be)' },
    { pattern: ' E $ ', options: 'xi' },
    { pattern: '(?<=gamma)\\.', options: '' },
    { pattern: 'ü', options: 'ims' },
    { pattern: '' },
    { pattern: '^tmp' },
    // These also match the empty text. The server uses the empty text if an oplog entry has no name.
    { pattern: '^(?!alpha|people)' },
    { pattern: '^(beta|ledger)?$' },
  )
  const entry: fc.Arbitrary<NamespaceFilter> = fc
    .tuple(
      fc.oneof(
        fc.constantFrom(...workloadDatabases, 'alpha').map((database) => ({ database })),
        pattern.map((databaseRegex) => ({ databaseRegex })),
      ),
      fc.oneof(
        fc.constant({}),
        fc.subarray([...workloadCollections], { minLength: 1 }).map((collections) => ({ collections })),
        pattern.map((collectionsRegex) => ({ collectionsRegex })),
      ),
    )
    .map(([database, collections]) => ({ ...database, ...collections }))
  const entries = fc.array(entry, { minLength: 1, maxLength: 2 })
  const filters = fc.record({ includeNamespaces: fc.option(entries), excludeNamespaces: fc.option(entries) })

  it('property: select the same events of a random history', { timeout: 60_000 }, async () => {
    expect(everything.length).toBeGreaterThan(300)
    await fc.assert(
      fc.asyncProperty(filters, async (filter) => {
        expect((await eventsOf(filter)).map(shown)).toEqual((await expectedOf(filter)).map(shown))
      }),
      { numRuns: 25, seed: 45 },
    )
  })

  it.each([{ pattern: '^tmp' }, { pattern: '^TMP', options: 'i' }])(
    'an exclusion by %j does not exclude temporary names of the server, so the stream contains all writes of an $out stage',
    async (collectionsRegex) => {
      const filter = { includeNamespaces: null, excludeNamespaces: [{ database: 'people', collectionsRegex }] }
      const of = (events: ChangeEvent[]): string[] =>
        events.filter(({ database, collection }) => database === 'people' && /^tmp|^out$/.test(collection)).map(shown)
      const found = of(await eventsOf(filter))
      expect(found).toEqual(of(everything))
      expect(found.some((event) => event.includes('insert people tmp.agg_out.'))).toBe(true)
      expect(await select(filter).selects('people', 'tmp.agg_out.0b1c')).toBe(true)
      expect(await select(filter).selects('people', 'tmpab1cd.renameCollection')).toBe(true)
      expect(await select(filter).selects('people', 'tmp.mine')).toBe(false)
    },
  )

  it('a filtered stream resumes after any batch without losing events', async () => {
    const filter = include({ database: 'people' }, { databaseRegex: { pattern: '^LED', options: 'i' } })
    expect((await eventsOf(filter, start, 1)).map(shown)).toEqual((await expectedOf(filter)).map(shown))
  })
})

describe('patterns', () => {
  const chosen = async (filter: NamespaceFilter, names: string[]): Promise<string[]> =>
    (
      await select(include(filter)).among(
        'zoo',
        names.map((name) => ({ name })),
      )
    ).map(({ name }) => name)

  it("4.5: are the server's regular expressions, with options in any order and features of its engine only", async () => {
    const names = ['cage_1', 'CAGE_2', 'Käfig', '$cage', '$$ROOT', 'aba', 'abc']
    const of = (pattern: string, options?: string): Promise<string[]> =>
      chosen({ database: 'zoo', collectionsRegex: { pattern, ...(options === undefined ? {} : { options }) } }, names)
    expect(await of('^ cage _', 'xi')).toEqual(['cage_1', 'CAGE_2'])
    expect(await of('^ cage _', 'ix')).toEqual(['cage_1', 'CAGE_2'])
    expect(await of('(?i)^KÄF')).toEqual(['Käfig'])
    expect(await of('^\\$')).toEqual(['$cage', '$$ROOT'])
    // This pattern matches palindromes by recursion, which JavaScript's regular expressions do not support.
    expect(await of('^((.)(?1)\\2|.)$')).toEqual(['aba'])
  })

  it.each([
    ['(', undefined, /missing/],
    ['a', 'q', /flag/],
    ['a\0', undefined, /null byte/],
  ])('4.5: %j with options %j is refused with the name of its field', async (pattern, options, reason) => {
    const bad = { pattern, ...(options === undefined ? {} : { options }) }
    const filter = { includeNamespaces: [{ database: 'a' }, { database: 'b', collectionsRegex: bad }] }
    const refused = await select({ ...filter, excludeNamespaces: null })
      .refuseBadPatterns()
      .catch((error) => error)
    expect(refused).toBeInstanceOf(RefusedError)
    expect(refused).toMatchObject({ refusal: 'InvalidRequest', message: expect.stringMatching(reason) })
    expect(refused.message).toMatch(/^includeNamespaces\[1\]\.collectionsRegex: /)
    const excluded = { includeNamespaces: null, excludeNamespaces: [{ databaseRegex: bad }] }
    await expect(select(excluded).refuseBadPatterns()).rejects.toThrow(/^excludeNamespaces\[0\]\.databaseRegex: /)
  })
})

describe('time-series collections', () => {
  const listed = [
    { name: 'weather', type: 'timeseries' },
    { name: 'system.buckets.weather', type: 'collection' },
    { name: 'rain', type: 'timeseries' },
    { name: 'things', type: 'collection' },
    { name: 'seen', type: 'view' },
  ]
  const names = (all: { name: string }[]) => all.map(({ name }) => name)

  it.each([
    ['without a filter', { includeNamespaces: null, excludeNamespaces: null }, ['weather', 'rain']],
    [
      'with a filter',
      {
        includeNamespaces: [{ database: 'app' }],
        excludeNamespaces: [{ database: 'app', collectionsRegex: { pattern: '^ra' } }],
      },
      ['weather'],
    ],
  ])('%s, are left out together with their buckets when the sync skips them', async (_what, filters, skipped) => {
    const skipping = new Selection(one.cluster, filters, 'skip')
    expect(names(await skipping.among('app', listed))).toEqual(['things', 'seen'])
    expect(names((await skipping.amongAll(new Map([['app', listed]]))).get('app') ?? [])).toEqual(['things', 'seen'])
    expect(names(await skipping.skipped('app', listed))).toEqual(skipped)
    // Only the type of a namespace decides, so a plain collection with the same name is selected.
    expect(await skipping.selects('app', 'weather')).toBe(true)
    expect(await skipping.selects('app', 'system.buckets.weather')).toBe(false)
    expect(skipping.events).toEqual(select(filters).events)
  })

  it('are selected by their names if the sync does not skip them, so that the sync is refused', async () => {
    const refusing = select({
      includeNamespaces: [{ database: 'app', collections: ['weather'] }],
      excludeNamespaces: null,
    })
    expect(names(await refusing.among('app', listed))).toEqual(['weather', 'system.buckets.weather'])
    expect(await refusing.skipped('app', listed)).toEqual([])
  })
})
