/**
 * Runs `work` with a signal that is aborted when the first of `signals` is aborted, and when `work` ends. On Node 20,
 * a signal retains about 100 bytes for each `AbortSignal.any` call that it is passed to, for as long as it exists. The
 * signals of a sync exist for days, and some waits begin several times a second. This function removes its listeners
 * again.
 */
export async function duringAny<T>(
  signals: readonly AbortSignal[],
  work: (signal: AbortSignal) => Promise<T>,
): Promise<T> {
  const first = new AbortController()
  const abort = (): void => first.abort()
  if (signals.some(({ aborted }) => aborted)) abort()
  for (const signal of signals) signal.addEventListener('abort', abort)
  try {
    return await work(first.signal)
  } finally {
    for (const signal of signals) signal.removeEventListener('abort', abort)
    // Ends timers that `work` has not cleared.
    abort()
  }
}
