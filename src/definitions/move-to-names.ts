import type { CatalogueEntry } from '../domain/catalogue.ts'

/**
 * Moves every collection of a database to the name the source has for it, parking those that stand in each other's way.
 * @param standing those that stand on the destination, under the names they have by now
 */
export async function moveToNames(
  standing: () => CatalogueEntry[],
  nameOf: (entry: CatalogueEntry) => string,
  move: (entry: CatalogueEntry, name: string) => Promise<void>,
): Promise<void> {
  const pending = standing().filter((entry) => nameOf(entry) !== entry.name)
  while (pending.length > 0) {
    const taken = new Set(standing().map((entry) => entry.name))
    const at = pending.findIndex((entry) => !taken.has(nameOf(entry)))
    if (at >= 0) {
      const entry = pending.splice(at, 1)[0] as CatalogueEntry
      await move(entry, nameOf(entry))
    } else {
      const entry = pending[0] as CatalogueEntry
      await move(entry, `tandem.parked.${Buffer.from(entry.uuid, 'latin1').toString('hex')}`)
    }
  }
}
