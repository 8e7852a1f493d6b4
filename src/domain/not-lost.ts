/** What an error that ends the sync in FAILED has not lost. Every description of such an error ends with one of these. */
export const notLost = {
  /** `resume` continues after the cause is fixed. */
  progress: 'Everything that was copied and applied so far is kept.',
  /** The sync has to start over. */
  source: 'No data is lost, because the source has all of it.',
  /** At start nothing exists yet, and later everything is kept. */
  atStartOrLater: 'Nothing is lost.',
} as const
