/**
 * Texts that say which data is kept after an error. Most descriptions of errors that lead to FAILED end with one of
 * them.
 */
export const notLost = {
  /** `resume` continues after the cause is fixed. */
  progress: 'Everything that was copied and applied so far is kept.',
  /** The sync has to start over. */
  source: 'No data is lost, because the source has all of it.',
  /** For errors that may occur at start, when nothing is copied yet, or later, when everything copied is kept. */
  atStartOrLater: 'Nothing is lost.',
} as const
