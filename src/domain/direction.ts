import type { CatalogEntry } from './catalog.ts'
import { assert } from './errors.ts'
import { namespace } from './namespace.ts'
import type { StartConfiguration } from './start-request.ts'

/** A reversal swaps source and destination in the stored state. Nothing is copied again. */

export function swapConfiguration(configuration: StartConfiguration): StartConfiguration {
  return { ...configuration, source: configuration.destination, destination: configuration.source }
}

/**
 * Swaps the source's and the destination's collection of an entry. `wanted` remains the definition of the former source
 * at the commit, which both clusters have then. The next read of the new source finds later changes.
 */
export function swapEntry(entry: CatalogEntry): CatalogEntry {
  assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} is committed but has no destination UUID`)
  return {
    ...entry,
    uuid: entry.destinationUUID,
    destinationUUID: entry.uuid,
    sourceName: entry.name,
    state: 'copied',
    converging: false,
    convergedFrom: null,
    hasTombstones: false,
  }
}
