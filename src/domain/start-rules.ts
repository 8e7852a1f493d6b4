import { RefusedError } from './errors.ts'
import type { StartConfiguration } from './start-request.ts'

/** Refuses a start whose options contradict each other, whatever the clusters are. What depends on the clusters is checked where they are known. */
export function refuseContradictions(configuration: StartConfiguration): void {
  if (configuration.buildIndexes === 'never' && configuration.reversible) {
    // A reversed sync writes into the old source, which would lack the indexes that were never built.
    throw new RefusedError(
      'ReversibleNotSupported',
      "reversible: true is not supported with buildIndexes 'never'; set buildIndexes to 'beforeDataCopy' or reversible to false",
    )
  }
}
