import type { CatalogEntry } from './catalog.ts'
import { assert } from './errors.ts'
import { namespace } from './namespace.ts'
import type { StartConfiguration } from './start-request.ts'

/** What a reversal does to the stored state: source and destination swap roles, and nothing is copied again. */

export function swapConfiguration(configuration: StartConfiguration): StartConfiguration {
  return { ...configuration, source: configuration.destination, destination: configuration.source }
}

/**
 * Swaps the two collections of an entry. `wanted` remains the definition that the former source had at its commit,
 * which the new destination has too. The next read of the new source finds what has changed since.
 */
export function swapEntry(entry: CatalogEntry): CatalogEntry {
  assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} was committed without a counterpart`)
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
