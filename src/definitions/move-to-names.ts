import type { CatalogEntry } from '../domain/catalog.ts'

/**
 * Renames every collection of a database to the name that `nameOf` returns. If collections have each other's names, one
 * of them first gets a temporary name.
 * @param existing returns the collections that exist on the destination, with their current names
 */
export async function moveToNames(
  existing: () => CatalogEntry[],
  nameOf: (entry: CatalogEntry) => string,
  move: (entry: CatalogEntry, name: string) => Promise<void>,
): Promise<void> {
  const pending = existing().filter((entry) => nameOf(entry) !== entry.name)
  while (pending.length > 0) {
    const taken = new Set(existing().map((entry) => entry.name))
    const at = pending.findIndex((entry) => !taken.has(nameOf(entry)))
    if (at >= 0) {
      const entry = pending.splice(at, 1)[0] as CatalogEntry
      await move(entry, nameOf(entry))
    } else {
      const entry = pending[0] as CatalogEntry
      await move(entry, `tandem.parked.${Buffer.from(entry.uuid, 'latin1').toString('hex')}`)
    }
  }
}
