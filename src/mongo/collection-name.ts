import type { Document } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { Cluster } from './cluster.ts'
import { code, codeOf, TransientReplyError } from './errors.ts'

/** A collection to read, on either cluster. The UUID identifies it; `name` may be outdated. */
export interface CollectionToRead {
  database: string
  name: string
  /** 16 bytes as latin1 text. */
  uuid: string
}

/**
 * Awaits a read that identifies its collection by UUID. If the collection was renamed or dropped, a server older than
 * 6.0 returns NamespaceNotFound without the current name. This function replaces that error with one for which
 * `renamedTo` returns null.
 */
export async function unlessGone<T>(cluster: Cluster, reading: Promise<T>): Promise<T> {
  return await reading.catch((error) => {
    if (cluster.before6 && codeOf(error) === code.namespaceNotFound) throw new RenamedOrDroppedError(error)
    throw error
  })
}

class RenamedOrDroppedError extends Error {
  constructor(cause: unknown) {
    super('the collection was renamed or dropped', { cause })
    this.name = 'RenamedOrDroppedError'
  }
}

/**
 * The namespace of a collection in this instance's catalog is outdated. Either the source renamed or dropped the
 * collection, or another instance did so on the destination. The error is transient, because a later event or the
 * stored catalog reports the change. If the error persists, `retry` fails with ClusterUnreachable.
 */
export class MovedError extends TransientReplyError {}

/**
 * Returns what a CollectionUUIDMismatch reports: the collection's current name in the same database, or null when the
 * collection is gone (dropped, or renamed into another database, which gives it a new UUID). Also returns null for the
 * error of `unlessGone`, after which the collection may exist under another name (`proveGone` finds out). Returns
 * undefined for any other error.
 */
export function renamedTo(error: unknown): string | null | undefined {
  if (error instanceof RenamedOrDroppedError) return null
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
