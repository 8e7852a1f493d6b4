import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
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

describe('a request to rename databases', () => {
  const rename = (from: string, to: string): NamespaceRename => ({ from: { database: from }, to: { database: to } })
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
