/** The context of an error. Several callers may add to it. For each field, the value that was added first is kept. */
export interface Circumstances {
  /** The step that tandem was performing, in the form that `progress.retrying` shows. */
  step?: string
  /** cluster0 or cluster1. */
  cluster?: string
  /** The command that failed on the server or on the way to it. */
  command?: string
  /** The database, or database and collection, that the command names. */
  namespace?: string
}

/**
 * Kept outside the errors, because tandem recognizes the driver's errors by their classes and texts, which must not
 * change.
 */
const known = new WeakMap<object, Circumstances>()

export function addCircumstances(error: unknown, circumstances: Circumstances): void {
  if (typeof error === 'object' && error !== null) known.set(error, { ...circumstances, ...known.get(error) })
}

export function circumstancesOf(error: unknown): Circumstances {
  return (typeof error === 'object' && error !== null && known.get(error)) || {}
}
