import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import {
  decidingName,
  isFiltered,
  isTemporary,
  type Matches,
  mayHold,
  type NamespaceFilters,
  selects,
} from '../../src/domain/namespace-filter.ts'
import type { NamespaceFilter } from '../../src/domain/start-request.ts'

/** Evaluates a pattern in JavaScript. For the names and patterns of this file, the server has the same result. */
const matches: Matches = ({ pattern, options }, text) => new RegExp(pattern, options).test(text)

const names = ['zoo', 'Zoo', 'shop', 'cage_1', 'cage_tmp', 'a.b'] as const
const name = fc.constantFrom(...names)
const pattern = fc.constantFrom(
  { pattern: '^cage_' },
  { pattern: '^z', options: 'i' },
  { pattern: '' },
  { pattern: 'p$' },
)
const entry: fc.Arbitrary<NamespaceFilter> = fc
  .tuple(
    fc.oneof(
      name.map((database) => ({ database })),
      pattern.map((databaseRegex) => ({ databaseRegex })),
    ),
    fc.oneof(
      fc.constant({}),
      fc.uniqueArray(name, { minLength: 1, maxLength: 3 }).map((collections) => ({ collections })),
      pattern.map((collectionsRegex) => ({ collectionsRegex })),
    ),
  )
  .map(([database, collections]) => ({ ...database, ...collections }))
const entries = fc.array(entry, { minLength: 1, maxLength: 3 })
const filters: fc.Arbitrary<NamespaceFilters> = fc.record({
  includeNamespaces: fc.option(entries),
  excludeNamespaces: fc.option(entries),
})

const include = (...includeNamespaces: NamespaceFilter[]): NamespaceFilters => ({
  includeNamespaces,
  excludeNamespaces: null,
})
const chosen = (filter: NamespaceFilters, database: string): string[] =>
  names.filter((one) => selects(filter, matches, database, one))

describe('the selected namespaces', () => {
  it('4.5: are all user collections without a filter, and no collection of the server', () => {
    const all = { includeNamespaces: null, excludeNamespaces: null }
    expect(isFiltered(all)).toBe(false)
    expect(chosen(all, 'zoo')).toEqual(names)
    for (const database of ['admin', 'local', 'config', 'mongosync_internal_tandem', 'tandem_internal']) {
      expect(chosen(all, database)).toEqual([])
      expect(mayHold(all, matches, database)).toBe(false)
    }
    expect(selects(all, matches, 'zoo', 'system.views')).toBe(false)
  })

  it('2.1: are those of the whole database for an entry without collections; names are case-sensitive', () => {
    expect(chosen(include({ database: 'zoo' }), 'zoo')).toEqual(names)
    expect(chosen(include({ database: 'zoo' }), 'Zoo')).toEqual([])
  })

  it('follow the example of docs/filters.md: collectionsRegex with options, a whole database, and an exclusion', () => {
    const filter = {
      includeNamespaces: [
        { database: 'zoo', collectionsRegex: { pattern: '^CAGE_', options: 'i' } },
        { database: 'shop' },
      ],
      excludeNamespaces: [{ database: 'zoo', collections: ['cage_tmp'] }],
    }
    expect(chosen(filter, 'zoo')).toEqual(['cage_1'])
    expect(chosen(filter, 'shop')).toEqual(names)
    expect(chosen(filter, 'Zoo')).toEqual([])
  })

  it('property: of entries that exclude are the complement of those of the same entries that include', () => {
    fc.assert(
      fc.property(entries, name, name, (list, database, collection) => {
        const included = selects(include(...list), matches, database, collection)
        const excluding = { includeNamespaces: null, excludeNamespaces: list }
        expect(selects(excluding, matches, database, collection)).toBe(!included)
      }),
    )
  })

  it('property: are those that any include entry selects, except those that any exclude entry selects', () => {
    fc.assert(
      fc.property(filters, name, name, (filter, database, collection) => {
        const one = (list: readonly NamespaceFilter[] | null): boolean =>
          (list ?? []).some((single) => selects(include(single), matches, database, collection))
        const expected = (!filter.includeNamespaces || one(filter.includeNamespaces)) && !one(filter.excludeNamespaces)
        expect(selects(filter, matches, database, collection)).toBe(expected)
      }),
    )
  })

  it('property: are only in databases for which mayHold is true', () => {
    fc.assert(
      fc.property(filters, name, name, (filter, database, collection) => {
        if (selects(filter, matches, database, collection)) expect(mayHold(filter, matches, database)).toBe(true)
      }),
    )
  })
})

describe('collection names that the server assigns', () => {
  it.each([
    ['system.buckets.weather', 'weather'],
    ['tmpAb1cd.convertToCapped.log.old', 'log.old'],
    ['tmp.agg_out.d27ab163', 'tmp.agg_out.d27ab163'],
    ['plain', 'plain'],
  ])('whether %s is synced is decided by the name %s', (listed, deciding) => {
    expect(decidingName(listed)).toBe(deciding)
  })

  it('include the temporary names of collections that are renamed later', () => {
    const temporary = ['tmp.agg_out.d27ab163-8173', 'tmpAvOBv.renameCollection']
    expect([...temporary, 'tmp', 'tmp_agg_out', 'my tmpAvOBv.renameCollection'].filter(isTemporary)).toEqual(temporary)
  })
})
