import fc from 'fast-check'
import { expect, it } from 'vitest'
import { RenamedDatabases } from '../../src/comparison/renamed-databases.ts'
import { splitNamespace } from '../../src/domain/namespace.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'

/** `tandem verify --remap` has its own code for the names, because it has to be independent of the code of the sync. */

const names = ['a', 'b', 'c', 'd', 'e']

it('verify and the sync give a collection the same name on the destination', () => {
  const wholes = ['a', 'b', 'c'].flatMap((database) => ['x', 'y.z'].map((one) => `${database}.${one}`))
  const subset = (of: string[]) => fc.shuffledSubarray(of)
  const pairs = fc
    .tuple(subset(names), subset(names), subset(wholes), subset(wholes))
    .map(([from, to, fromWhole, toWhole]) => [...paired(from, to), ...paired(fromWhole, toWhole)])
  const nameOf = (text: string) => (text.includes('.') ? splitNamespace(text) : { database: text })
  fc.assert(
    fc.property(pairs, (renamed) => {
      const remap = new NamespaceRemap(renamed.map(({ from, to }) => ({ from: nameOf(from), to: nameOf(to) })))
      const compared = new RenamedDatabases(renamed)
      for (const one of [...wholes, 'd.x', 'other.x']) {
        const { database, collection } = splitNamespace(one)
        const there = splitNamespace(remap.namespaceOnDestination(one))
        expect(compared.collectionThere(database, collection)).toEqual(there)
        expect(compared.collectionHere(there.database, there.collection)).toEqual({ database, collection })
        expect(compared.allThere(database)).toContain(there.database)
        expect(compared.allHere(there.database)).toContain(database)
      }
      expect(compared.unpairedCollections.map(({ from }) => splitNamespace(from))).toEqual(remap.displacedCollections)
    }),
    { numRuns: 1_000 },
  )
})

function paired(from: string[], to: string[]): { from: string; to: string }[] {
  return from.flatMap((one, at) => {
    const other = to[at]
    return other === undefined || other === one ? [] : [{ from: one, to: other }]
  })
}

it('verify and the sync give a database the same name on the destination', () => {
  const pairs = fc.tuple(fc.shuffledSubarray(names), fc.shuffledSubarray(names)).map(([from, to]) =>
    from.flatMap((one, at) => {
      const other = to[at]
      return other === undefined || other === one ? [] : [{ from: one, to: other }]
    }),
  )
  fc.assert(
    fc.property(pairs, (renamed) => {
      const remap = new NamespaceRemap(
        renamed.map(({ from, to }) => ({ from: { database: from }, to: { database: to } })),
      )
      const compared = new RenamedDatabases(renamed)
      for (const one of [...names, 'other']) {
        expect(compared.there(one)).toBe(remap.onDestination(one))
        expect(compared.here(one)).toBe(remap.onSource(one))
      }
      expect(compared.unpaired).toEqual(remap.displaced.map((one) => ({ from: one, to: remap.onDestination(one) })))
    }),
  )
})
