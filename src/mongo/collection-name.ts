import type { Document } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { Cluster } from './cluster.ts'
import { code, codeOf, TransientReplyError } from './errors.ts'

/** A collection to read. The UUID identifies it; `name` may be outdated. */
export interface SourceCollection {
  database: string
  name: string
  /** 16 bytes as latin1 text. */
  uuid: string
}

/**
 * Before 6.0, servers report only that a UUID does not exist or does not belong to this name, never its current name.
 * Such an error becomes a GoneError.
 */
export async function unlessGone<T>(cluster: Cluster, reading: Promise<T>): Promise<T> {
  return await reading.catch((error) => {
    if (cluster.before6 && codeOf(error) === code.namespaceNotFound) throw new GoneError(error)
    throw error
  })
}

class GoneError extends Error {
  constructor(cause: unknown) {
    super('the collection was renamed or dropped', { cause })
    this.name = 'GoneError'
  }
}

/**
 * The catalog's namespace of the collection is outdated: the collection was renamed or dropped, on the source or by
 * another instance. The error is transient, because a later event or the stored catalog contains the current name. If
 * it persists, the retries end with a named failure.
 */
export class MovedError extends TransientReplyError {}

/**
 * Returns what a CollectionUUIDMismatch reports: the collection's current name in the same database, or null when it is
 * gone (dropped, or renamed into another database, which gives it a new UUID). Also returns null for the GoneError of
 * `unlessGone`, and undefined for any other error.
 */
export function renamedTo(error: unknown): string | null | undefined {
  if (error instanceof GoneError) return null
  const response = (error as { errorResponse?: Document }).errorResponse
  if (response?.['code'] !== code.collectionUUIDMismatch) return undefined
  return (response['actualCollection'] as string | null | undefined) ?? null
}

/**
 * Runs a command that identifies a collection of the destination by UUID and name. If the name is outdated, runs it
 * again with the current name that the server reports (CollectionUUIDMismatch). Does nothing if the collection no
 * longer exists.
 */
export async function underPresentName(
  entry: Pick<CatalogEntry, 'name'>,
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
