import type { Document } from 'mongodb'
import type { CatalogueEntry } from '../domain/catalogue.ts'
import type { Cluster } from './cluster.ts'
import { code, codeOf } from './errors.ts'

export interface SourceCollection {
  database: string
  name: string
  /** 16 bytes as latin1 text. */
  uuid: string
}

/** Releases before 6.0 say of a UUID that it stands for nothing, or not for this name; never where it is now. */
export async function unlessGone<T>(cluster: Cluster, work: Promise<T>): Promise<T> {
  return await work.catch((error) => {
    if (cluster.before6 && codeOf(error) === code.namespaceNotFound) throw new GoneError(error)
    throw error
  })
}

class GoneError extends Error {
  constructor(cause: unknown) {
    super('the collection is not where it was', { cause })
    this.name = 'GoneError'
  }
}

/**
 * What a CollectionUUIDMismatch says: the collection's present name in the same database, or null when it is gone
 * (dropped, or renamed into another database, which gives it a new UUID). Undefined for any other error.
 */
export function renamedTo(error: unknown): string | null | undefined {
  if (error instanceof GoneError) return null
  const response = (error as { errorResponse?: Document }).errorResponse
  if (response?.['code'] !== code.collectionUUIDMismatch) return undefined
  return (response['actualCollection'] as string | null | undefined) ?? null
}

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
