import fc from 'fast-check'
import { expect, it } from 'vitest'
import { RenamedDatabases } from '../../src/comparison/renamed-databases.ts'
import { NamespaceRemap } from '../../src/domain/namespace-remap.ts'

/** `tandem verify --remap` has its own code for the names, because it has to be independent of the code of the sync. */

const names = ['a', 'b', 'c', 'd', 'e']

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
