import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { splitNamespace } from '../../src/domain/namespace.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'
import { parseRemap } from '../../src/domain/namespace-remap-rules.ts'
import type { NamespaceRename } from '../../src/domain/start-request.ts'

const names = ['a', 'b', 'c', 'd', 'e', 'f']
const name = fc.constantFrom(...names)

/** Generates requests that the rules accept: no source and no target occurs twice, and no database keeps its name. */
const renames = fc.tuple(fc.shuffledSubarray(names), fc.shuffledSubarray(names)).map(([from, to]): NamespaceRename[] =>
  from.flatMap((database, at) => {
    const target = to[at]
    return target === undefined || target === database ? [] : [{ from: { database }, to: { database: target } }]
  }),
)

describe('the names of databases on the destination', () => {
  it('are those of the request, and all other databases keep their names, except a database whose name is a target', () => {
    fc.assert(
      fc.property(renames, name, (given, database) => {
        const remap = new NamespaceRemap(parseRemap(given))
        const requested = given.find(({ from }) => from.database === database)
        const isTarget = given.some(({ to }) => to.database === database)
        if (requested) expect(remap.onDestination(database)).toBe(requested.to.database)
        else if (!isTarget) expect(remap.onDestination(database)).toBe(database)
        expect(remap.displaced.includes(database)).toBe(isTarget && !requested)
      }),
    )
  })

  it('are one-to-one over all names, and the inverse finds the source name again', () => {
    fc.assert(
      fc.property(renames, (given) => {
        const remap = new NamespaceRemap(parseRemap(given))
        expect(new Set(names.map((one) => remap.onDestination(one))).size).toBe(names.length)
        for (const one of [...names, 'other']) {
          expect(remap.onSource(remap.onDestination(one))).toBe(one)
          expect(remap.onDestination(remap.onSource(one))).toBe(one)
          const whole = `${one}.x.y`
          expect(remap.namespaceOnDestination(whole)).toBe(`${remap.onDestination(one)}.x.y`)
          expect(remap.namespaceOnSource(remap.namespaceOnDestination(whole))).toBe(whole)
        }
        expect(new Set(remap.renamed.map(([from]) => from))).toEqual(
          new Set(names.filter((one) => remap.onDestination(one) !== one)),
        )
      }),
    )
  })

  it('give a database whose name is a target the name that has become free', () => {
    const remap = new NamespaceRemap([
      { from: { database: 'a' }, to: { database: 'b' } },
      { from: { database: 'b' }, to: { database: 'c' } },
    ])
    expect(remap.displaced).toEqual(['c'])
    expect(remap.onDestination('c')).toBe('a')
    expect(remap.onSource('a')).toBe('c')
  })

  it('are shown with both names where they differ', () => {
    const remap = new NamespaceRemap([{ from: { database: 'shop' }, to: { database: 'store' } }])
    expect(remap.shown('shop.orders')).toBe('store.orders (on the source: shop.orders)')
    expect(remap.shown('zoo.cages')).toBe('zoo.cages')
  })
})

describe('the names of collections on the destination', () => {
  const wholes = ['a', 'b', 'c', 'd'].flatMap((database) => ['x', 'y', 'x.y'].map((one) => `${database}.${one}`))
  /** Generates renamed collections beside renamed databases. */
  const both = fc
    .tuple(renames, fc.shuffledSubarray(wholes), fc.shuffledSubarray(wholes))
    .map(([databases, from, to]): NamespaceRename[] => [
      ...databases,
      ...from.flatMap((one, at) => {
        const other = to[at]
        return other === undefined || other === one ? [] : [{ from: splitNamespace(one), to: splitNamespace(other) }]
      }),
    ])
  const all = [...names, 'other'].flatMap((database) => ['x', 'y', 'x.y', 'z'].map((one) => `${database}.${one}`))

  it('are one-to-one over all names, and the inverse finds the source name again', () => {
    fc.assert(
      fc.property(both, (given) => {
        const remap = new NamespaceRemap(parseRemap(given))
        expect(new Set(all.map((one) => remap.namespaceOnDestination(one))).size).toBe(all.length)
        for (const one of all) {
          expect(remap.namespaceOnSource(remap.namespaceOnDestination(one))).toBe(one)
          expect(remap.namespaceOnDestination(remap.namespaceOnSource(one))).toBe(one)
        }
      }),
      { numRuns: 2_000 },
    )
  })

  it('are those of the request, and only names that the request gives to others are displaced', () => {
    fc.assert(
      fc.property(both, fc.constantFrom(...all), (given, one) => {
        const remap = new NamespaceRemap(parseRemap(given))
        const { database, collection } = splitNamespace(one)
        const own = given.find(({ from }) => from.database === database && from.collection === collection)
        const usual = `${remap.onDestination(database)}.${collection}`
        const isTaken = given.some(({ to }) => to.collection && `${to.database}.${to.collection}` === usual)
        if (own) expect(remap.namespaceOnDestination(one)).toBe(`${own.to.database}.${own.to.collection}`)
        else if (!isTaken) expect(remap.namespaceOnDestination(one)).toBe(usual)
        const displaced = remap.displacedCollections.some(
          (of) => of.database === database && of.collection === collection,
        )
        expect(displaced).toBe(isTaken && !own)
        expect(remap.isPlaced(database, collection)).toBe(own !== undefined || isTaken)
      }),
      { numRuns: 2_000 },
    )
  })

  it('are in the databases that are read for a database, and in no other', () => {
    fc.assert(
      fc.property(both, fc.constantFrom(...all), (given, one) => {
        const remap = new NamespaceRemap(parseRemap(given))
        const { database } = splitNamespace(one)
        const there = splitNamespace(remap.namespaceOnDestination(one)).database
        expect(remap.placesOf(database).map((place) => remap.onDestination(place))).toContain(there)
        expect(remap.sourcesOf(there)).toContain(database)
      }),
      { numRuns: 2_000 },
    )
  })

  it('separate two names of a collection unless both are in the database of the others', () => {
    const remap = new NamespaceRemap([
      { from: { database: 'a', collection: 'b' }, to: { database: 'c', collection: 'd' } },
      { from: { database: 'a', collection: 'e' }, to: { database: 'a', collection: 'f' } },
    ])
    expect(remap.separates('a', 'b', 'x')).toBe(true)
    expect(remap.separates('a', 'x', 'b')).toBe(true)
    expect(remap.separates('a', 'e', 'b')).toBe(true)
    expect(remap.separates('a', 'e', 'x')).toBe(false)
    expect(remap.separates('a', 'x', 'y')).toBe(false)
    expect(remap.separates('a', 'b', 'b')).toBe(false)
    expect(remap.shown('a.b')).toBe('c.d (on the source: a.b)')
    expect(remap.displacedCollections).toEqual([
      { database: 'c', collection: 'd' },
      { database: 'a', collection: 'f' },
    ])
  })
})

describe('a request to rename databases', () => {
  const rename = (from: string, to: string): NamespaceRename => ({ from: { database: from }, to: { database: to } })
  const move = (from: string, to: string): NamespaceRename => ({ from: splitNamespace(from), to: splitNamespace(to) })
  const refused = (...given: NamespaceRename[]): string => {
    try {
      parseRemap(given)
    } catch (error) {
      return (error as Error).message
    }
    return 'accepted'
  }

  it('may be empty or absent, and then renames no database', () => {
    expect(parseRemap(undefined)).toBeNull()
    expect(parseRemap([])).toBeNull()
  })

  it('may exchange names', () => {
    expect(refused(rename('a', 'b'), rename('b', 'a'))).toBe('accepted')
  })

  it.each([
    [
      'two sources to one target',
      [rename('a', 'c'), rename('b', 'c')],
      /namespaceRemap\[1\]\.to\.database: c is the target of namespaceRemap\[0\]/,
    ],
    [
      'targets that differ only in case',
      [rename('a', 'c'), rename('b', 'C')],
      /namespaceRemap\[1\]\.to\.database: C is the target/,
    ],
    [
      'a source twice',
      [rename('a', 'c'), rename('a', 'd')],
      /namespaceRemap\[1\]\.from\.database: a is renamed by namespaceRemap\[0\]/,
    ],
    ['a database onto itself', [rename('a', 'a')], /namespaceRemap\[0\]\.to\.database: a is the name on the source/],
    ['a collection twice', [move('a.b', 'c.d'), move('a.b', 'c.e')], /\[1\]\.from\.collection: a\.b is renamed by/],
    ['two collections to one', [move('a.b', 'c.d'), move('a.e', 'c.d')], /\[1\]\.to\.collection: c\.d is the target/],
    ['a collection onto itself', [move('a.b', 'a.b')], /\.to\.collection: a\.b is the name on the source/],
    [
      'databases of collections that differ only in case',
      [move('a.b', 'c.d'), move('a.e', 'C.f')],
      /\[1\]\.to\.database: C differs only in case from c of namespaceRemap\[0\]/,
    ],
    [
      'half a collection',
      [{ from: { database: 'a', collection: 'b' }, to: { database: 'c' } }],
      /\[0\]\.to\.collection: .*in both/,
    ],
    [
      'the other half',
      [{ from: { database: 'a' }, to: { database: 'c', collection: 'b' } }],
      /\[0\]\.from\.collection: .*in both/,
    ],
    ['a system collection', [move('a.system.views', 'c.d')], /from\.collection: system\.views is internal/],
    ['a system collection as target', [move('a.b', 'c.system.js')], /to\.collection: system\.js is internal/],
    ['a temporary name', [move('a.b', 'c.tandem.parked.1')], /to\.collection: tandem\.parked\.1 is a temporary/],
    ['a temporary name of the server', [move('a.tmp.agg_out.1', 'c.d')], /from\.collection: .*temporary/],
    ['a collection in a server database', [move('a.b', 'config.d')], /to\.database: config is internal/],
    ...['.b', 'b.', 'b..c', 'a$b', 'a\0b'].map(
      (bad) =>
        [
          `the name ${JSON.stringify(bad)} of a collection`,
          [{ from: { database: 'a', collection: 'b' }, to: { database: 'c', collection: bad } }],
          /to\.collection: the name of a collection contains no/,
        ] as const,
    ),
    ['a server database as source', [rename('admin', 'c')], /namespaceRemap\[0\]\.from\.database: admin is internal/],
    ['a server database as target', [rename('a', 'config')], /namespaceRemap\[0\]\.to\.database: config is internal/],
    [
      "tandem's metadata",
      [rename('a', 'mongosync_internal_tandem')],
      /to\.database: mongosync_internal_tandem is internal/,
    ],
    ['a long name', [rename('a', 'é'.repeat(32))], /to\.database: the name of a database has at most 63 bytes/],
    ...['a.b', 'a/b', 'a\\b', 'a b', 'a"b', 'a$b', 'a*b', 'a<b', 'a>b', 'a:b', 'a|b', 'a?b', 'a\0b'].map(
      (bad) =>
        [
          `the name ${JSON.stringify(bad)}`,
          [rename('a', bad)],
          /to\.database: the name of a database contains none/,
        ] as const,
    ),
  ] as const)('is refused with %s', (_what, given, expected) => {
    expect(refused(...given)).toMatch(expected)
  })
})
