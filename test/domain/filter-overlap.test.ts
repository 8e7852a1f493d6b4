import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { overlapOf, overlapOnDestination, type Written } from '../../src/domain/filter-overlap.ts'
import { splitNamespace } from '../../src/domain/namespace.ts'
import { type Matches, type NamespaceFilters, selects } from '../../src/domain/namespace-filter.ts'
import { NamespaceRemap, noRemap } from '../../src/domain/namespace-remap.ts'
import type { NamespaceFilter } from '../../src/domain/start-request.ts'

/** Two syncs into one destination must not select a common namespace. */

const matches: Matches = ({ pattern, options }, text) => new RegExp(pattern, options).test(text)
const including = (...includeNamespaces: NamespaceFilter[]): NamespaceFilters => ({
  includeNamespaces,
  excludeNamespaces: null,
})
const excluding = (...excludeNamespaces: NamespaceFilter[]): NamespaceFilters => ({
  includeNamespaces: null,
  excludeNamespaces,
})
const none: NamespaceFilters = { includeNamespaces: null, excludeNamespaces: null }
const overlap = (one: NamespaceFilters, other: NamespaceFilters) => overlapOf(one, other, matches)

describe('two filters', () => {
  const regex = (pattern: string) => ({ pattern })
  it.each<[string, NamespaceFilters, NamespaceFilters, string | null]>([
    ['without any filter', none, none, 'all databases'],
    ['without a filter and with one', none, including({ database: 'a' }), 'a.*'],
    ['of other databases', including({ database: 'a' }), including({ database: 'b' }), null],
    ['of one database', including({ database: 'a' }), including({ database: 'b' }, { database: 'a' }), 'a.*'],
    [
      'of other collections',
      including({ database: 'a', collections: ['x'] }),
      including({ database: 'a', collections: ['y'] }),
      null,
    ],
    [
      'of a common collection',
      including({ database: 'a', collections: ['x', 'y'] }),
      including({ database: 'a', collections: ['z', 'y'] }),
      'a.y',
    ],
    [
      'of a collection and its database',
      including({ database: 'a', collections: ['x'] }),
      including({ database: 'a' }),
      'a.x',
    ],
    ['of which one excludes what the other includes', excluding({ database: 'a' }), including({ database: 'a' }), null],
    [
      'of which one excludes the collections that the other includes',
      excluding({ database: 'a', collections: ['x', 'y'] }),
      including({ database: 'a', collections: ['y'] }),
      null,
    ],
    [
      'of which one excludes only some collections',
      excluding({ database: 'a', collections: ['x'] }),
      including({ database: 'a' }),
      'a.*',
    ],
    [
      'of a pattern that matches the database',
      including({ databaseRegex: regex('^a') }),
      including({ database: 'ab' }),
      'ab.*',
    ],
    [
      'of a pattern that does not match the database',
      including({ databaseRegex: regex('^a') }),
      including({ database: 'b' }),
      null,
    ],
    [
      'of two patterns of databases',
      including({ databaseRegex: regex('^a') }),
      including({ databaseRegex: regex('^b') }),
      'databases that match /^a/ and /^b/',
    ],
    [
      'of which one excludes the pattern that the other includes',
      excluding({ databaseRegex: regex('^a') }),
      including({ databaseRegex: regex('^a') }),
      null,
    ],
    [
      // Both select tmp.agg_out.…, because an exclusion by a pattern does not apply to temporary names.
      'of a pattern of collections, which the other excludes',
      including({ database: 'a', collectionsRegex: regex('^(?!x)') }),
      excluding({ database: 'a', collectionsRegex: regex('^(?!x)') }),
      'a.*',
    ],
    [
      'of listed collections that a pattern of the other excludes',
      including({ database: 'a', collections: ['x1', 'x2'] }),
      excluding({ database: 'a', collectionsRegex: regex('^x') }),
      null,
    ],
    [
      'of a listed temporary name that a pattern of the other excludes',
      including({ database: 'a', collections: ['x', 'tmp.agg_out.1'] }),
      excluding({ database: 'a', collectionsRegex: regex('.') }),
      'a.tmp.agg_out.1',
    ],
    [
      'of two patterns of collections in one database',
      including({ database: 'a', collectionsRegex: regex('^x') }),
      including({ database: 'a', collectionsRegex: regex('^y') }),
      'a.*',
    ],
  ])('%s', (_what, one, other, expected) => {
    expect(overlap(one, other)).toBe(expected)
    if (expected === null) expect(overlap(other, one)).toBeNull()
    else expect(overlap(other, one)).not.toBeNull()
  })
})

describe('filters of any form', () => {
  const databases = ['a', 'ab', 'b']
  const collections = ['x', 'xy', 'y']
  const temporary = ['tmp.agg_out.1', 'tmpabcde.renameCollection']
  const pattern = (names: string[]) =>
    fc.constantFrom(...names, 'a|x', '.', 'tmp', '(?!x)').map((text) => ({ pattern: `^${text}` }))
  const entry: fc.Arbitrary<NamespaceFilter> = fc
    .tuple(
      fc.oneof(
        fc.constantFrom(...databases).map((database) => ({ database })),
        pattern(databases).map((databaseRegex) => ({ databaseRegex })),
      ),
      fc.oneof(
        fc.constant({}),
        fc.subarray([...collections, 'tmp.agg_out.1'], { minLength: 1 }).map((names) => ({ collections: names })),
        pattern(collections).map((collectionsRegex) => ({ collectionsRegex })),
      ),
    )
    .map(([database, names]) => ({ ...database, ...names }))
  const entries = fc.option(fc.array(entry, { minLength: 1, maxLength: 3 }))
  const filters = fc.record({ includeNamespaces: entries, excludeNamespaces: entries })

  it('select no common namespace if no overlap is found', () => {
    fc.assert(
      fc.property(filters, filters, (one, other) => {
        if (overlap(one, other) !== null) return
        for (const database of [...databases, 'c', 'xx'])
          for (const collection of [...collections, ...temporary, 'z', 'aa'])
            expect(selects(one, matches, database, collection) && selects(other, matches, database, collection)).toBe(
              false,
            )
      }),
      { numRuns: 5_000 },
    )
  })

  const remap = fc
    .tuple(fc.shuffledSubarray([...databases, 'c']), fc.shuffledSubarray([...databases, 'c']))
    .map(([from, to]) =>
      from.flatMap((database, at) => {
        const target = to[at]
        return target === undefined || target === database ? [] : [{ from: { database }, to: { database: target } }]
      }),
    )
    .map((renames) => new NamespaceRemap(renames))
  const sync = fc.record({ filters, names: remap })

  it('write to no common namespace of the destination if no overlap is found, also if they rename databases', () => {
    fc.assert(
      fc.property(sync, sync, (one, other) => {
        if (overlapOnDestination(one, other, matches) !== null) return
        for (const database of [...databases, 'c', 'xx'])
          for (const collection of [...collections, ...temporary, 'z', 'aa'])
            expect(
              [one, other].every(({ filters: given, names }) =>
                selects(given, matches, names.onSource(database), collection),
              ),
            ).toBe(false)
      }),
      { numRuns: 5_000 },
    )
  })

  const wholes = [...databases, 'c'].flatMap((database) => [...collections, 'z'].map((one) => `${database}.${one}`))
  const both = fc
    .tuple(
      fc.shuffledSubarray(databases),
      fc.shuffledSubarray([...databases, 'c']),
      fc.shuffledSubarray(wholes),
      fc.shuffledSubarray(wholes),
    )
    .map(([from, to, fromWhole, toWhole]) => [
      ...from.flatMap((one, at) =>
        to[at] && to[at] !== one ? [{ from: { database: one }, to: { database: to[at] } }] : [],
      ),
      ...fromWhole.flatMap((one, at) =>
        toWhole[at] && toWhole[at] !== one ? [{ from: splitNamespace(one), to: splitNamespace(toWhole[at]) }] : [],
      ),
    ])
    .map((renames) => new NamespaceRemap(renames))
  const moving = fc.record({ filters, names: both })

  it('write to no common namespace of the destination if no overlap is found, also if they rename collections', () => {
    fc.assert(
      fc.property(moving, moving, (one, other) => {
        if (overlapOnDestination(one, other, matches) !== null) return
        for (const database of [...databases, 'c', 'xx'])
          for (const collection of [...collections, ...temporary, 'z', 'aa'])
            expect(
              [one, other].every(({ filters: given, names }) => {
                const from = splitNamespace(names.namespaceOnSource(`${database}.${collection}`))
                return selects(given, matches, from.database, from.collection)
              }),
            ).toBe(false)
      }),
      { numRuns: 5_000 },
    )
  })

  it('are reported with the same text as without renames if no database is renamed', () => {
    fc.assert(
      fc.property(filters, filters, (one, other) => {
        const written = [one, other].map((given) => ({ filters: given, names: noRemap })) as [Written, Written]
        expect(overlapOnDestination(...written, matches)).toBe(overlap(one, other))
      }),
    )
  })
})

describe('two syncs that give databases other names', () => {
  const named = (filters: NamespaceFilters, ...renames: [string, string][]): Written => ({
    filters,
    names: new NamespaceRemap(renames.map(([from, to]) => ({ from: { database: from }, to: { database: to } }))),
  })
  it.each<[string, Written, Written, string | null]>([
    [
      'from one name to two',
      named(including({ database: 'a' }), ['a', 'b']),
      named(including({ database: 'a' })),
      null,
    ],
    [
      'from two names to one',
      named(including({ database: 'a', collections: ['x'] }), ['a', 'b']),
      named(including({ database: 'b' })),
      'b.x',
    ],
    [
      'both to one',
      named(including({ database: 'a' }), ['a', 'c']),
      named(including({ database: 'b' }), ['b', 'c']),
      'c.*',
    ],
    [
      'of which one selects everything except what the other writes',
      named(including({ database: 'a' }), ['a', 'b']),
      named(excluding({ database: 'b' })),
      null,
    ],
    [
      'by a pattern',
      named(including({ databaseRegex: { pattern: '^a' } }), ['a', 'z']),
      named(including({ database: 'z', collections: ['x'] })),
      'z.x',
    ],
  ])('%s', (_what, one, other, expected) => {
    expect(overlapOnDestination(one, other, matches)).toBe(expected)
    expect(overlapOnDestination(other, one, matches)).toBe(expected)
  })
})
