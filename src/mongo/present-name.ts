import type { CatalogueEntry } from '../domain/catalogue.ts'
import { code, codeOf } from './errors.ts'
import { renamedTo } from './read-documents.ts'

/**
 * Runs a command on a collection of the destination, which it names by UUID as well, under the collection's present name, as the
 * server corrects it (CollectionUUIDMismatch). One that is gone needs nothing.
 */
export async function underPresentName(
  entry: Pick<CatalogueEntry, 'name'>,
  run: (name: string) => Promise<unknown>,
): Promise<void> {
  try {
    await run(entry.name)
  } catch (error) {
    if (codeOf(error) === code.namespaceNotFound) return
    const name = renamedTo(error)
    if (name === undefined) throw error
    if (name === null) return
    await run(name)
  }
}
