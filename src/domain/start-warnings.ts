import { warningsOfMethod } from './compare-method.ts'
import { isFiltered } from './namespace-filter.ts'
import type { StartConfiguration } from './start-request.ts'

/**
 * Returns the warnings of the answer to a start.
 * @param sourceBefore6 the source is older than 6.0
 */
export function warningsOfStart(configuration: StartConfiguration, sourceBefore6: boolean): string[] {
  return [...warningsOfMethod(configuration), ...leftOutBlocking(configuration, sourceBefore6)]
}

/**
 * Warns when `start` left out enableUserWriteBlocking. mongosync 1.20 and later then block both clusters, and a script for
 * them may rely on that. With a filter, or a source older than 6.0, they block only the destination, as tandem does.
 */
export function leftOutBlocking(configuration: StartConfiguration, sourceBefore6: boolean): string[] {
  if (configuration.writeBlockingGiven || isFiltered(configuration) || sourceBefore6) return []
  return [
    'start left out enableUserWriteBlocking, so only the destination is blocked (destinationOnly); mongosync 1.20 and later block the source too, ' +
      'from commit on. If your scripts expect that, stop all writes on the source before commit; otherwise ignore this',
  ]
}
