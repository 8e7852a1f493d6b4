/** Every description of an error that leads to FAILED ends with one of these texts. It says which data is kept. */
export const notLost = {
  /** `resume` continues after the cause is fixed. */
  progress: 'Everything that was copied and applied so far is kept.',
  /** The sync has to start over. */
  source: 'No data is lost, because the source has all of it.',
  /** At start nothing exists yet, and later everything is kept. */
  atStartOrLater: 'Nothing is lost.',
} as const
