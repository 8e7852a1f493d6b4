/** What an error was met by. The innermost of each stays, so whoever knows more than the error's own text adds it. */
export interface Circumstances {
  /** What tandem was doing, as `progress.retrying` would say it. */
  step?: string
  /** cluster0 or cluster1. */
  cluster?: string
  /** The command that the server, or the way to it, failed. */
  command?: string
  /** Database, or database and collection, that the command names. */
  namespace?: string
}

/** Beside the errors: their classes and texts stay the driver's, by which they are told apart. */
const known = new WeakMap<object, Circumstances>()

export function addCircumstances(error: unknown, circumstances: Circumstances): void {
  if (typeof error === 'object' && error !== null) known.set(error, { ...circumstances, ...known.get(error) })
}

export function circumstancesOf(error: unknown): Circumstances {
  return (typeof error === 'object' && error !== null && known.get(error)) || {}
}
