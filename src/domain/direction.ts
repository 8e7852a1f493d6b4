import type { CatalogueEntry } from './catalogue.ts'
import { assert } from './errors.ts'
import { namespace } from './namespace.ts'
import type { StartConfiguration } from './start-request.ts'

/** What a reversal makes of what is known: nothing is copied again, source and destination change places. */

export function turnConfiguration(configuration: StartConfiguration): StartConfiguration {
  return { ...configuration, source: configuration.destination, destination: configuration.source }
}

/**
 * The pair of collections stays; the other one leads. `wanted` is still what the former source had at its commit, and so
 * what stands on the new destination: the next look at the new source follows what changed since.
 */
export function turnEntry(entry: CatalogueEntry): CatalogueEntry {
  assert(entry.destinationUUID, `${namespace(entry.database, entry.name)} was committed without a counterpart`)
  return {
    ...entry,
    uuid: entry.destinationUUID,
    destinationUUID: entry.uuid,
    sourceName: entry.name,
    state: 'copied',
    hasTombstones: false,
  }
}
