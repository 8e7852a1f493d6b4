import { deferred } from './deferred.ts'

/**
 * Runs `step` repeatedly, with as many runs at a time as `width` returns at that moment, until one run returns false
 * (nothing is left to do) or fails. It waits for the runs in progress and then throws the first failure. `subscribe`
 * receives a function to call when `width` may have risen, and returns a function that unsubscribes.
 */
export async function elastically(
  width: () => number,
  subscribe: (changed: () => void) => () => void,
  step: () => Promise<boolean>,
): Promise<void> {
  let running = 0
  let over = false
  let failed: { error: unknown } | null = null
  // Each round creates a new promise, because every wait for a promise stays attached to it until it is resolved.
  let turn = deferred<void>()
  const unsubscribe = subscribe(() => turn.resolve())
  const run = async (): Promise<void> => {
    try {
      if (!(await step())) over = true
    } catch (error) {
      over = true
      failed ??= { error }
    }
    running -= 1
    turn.resolve()
  }
  try {
    for (;;) {
      turn = deferred()
      while (!over && running < width()) {
        running += 1
        void run()
      }
      if (over && running === 0) break
      await turn.promise
    }
  } finally {
    unsubscribe()
  }
  if (failed) throw (failed as { error: unknown }).error
}
