import { deferred } from './deferred.ts'

/**
 * Runs `step` again and again, as many at a time as `width` says now, until one has found nothing more to do (false) or has
 * failed; those under way are awaited. `subscribe` is told whom to call when `width` may have risen, and returns how to unsubscribe.
 */
export async function elastically(
  width: () => number,
  subscribe: (changed: () => void) => () => void,
  step: () => Promise<boolean>,
): Promise<void> {
  let running = 0
  let over = false
  let failed: { error: unknown } | null = null
  // A new one for each look: what is waited for long must not be waited for often, as every wait would stay with it.
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
