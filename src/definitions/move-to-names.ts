import type { CatalogueEntry } from '../domain/catalogue.ts'

/**
 * Renames every collection of a database to its name on the source. Collections that block each other's names get a
 * temporary name first.
 * @param existing returns the collections that exist on the destination, with their current names
 */
export async function moveToNames(
  existing: () => CatalogueEntry[],
  nameOf: (entry: CatalogueEntry) => string,
  move: (entry: CatalogueEntry, name: string) => Promise<void>,
): Promise<void> {
  const pending = existing().filter((entry) => nameOf(entry) !== entry.name)
  while (pending.length > 0) {
    const taken = new Set(existing().map((entry) => entry.name))
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
