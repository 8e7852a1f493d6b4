import { setTimeout as sleep } from 'node:timers/promises'

/** Calls `attempt` until it does not throw, and returns its result. It replaces `vi.waitFor` outside of tests. */
export async function until<T>(what: string, attempt: () => Promise<T>, timeoutSeconds = 90): Promise<T> {
  const deadline = Date.now() + timeoutSeconds * 1_000
  for (;;) {
    try {
      return await attempt()
    } catch (error) {
      if (Date.now() > deadline) throw new Error(`waited ${timeoutSeconds} s for: ${what}`, { cause: error })
      await sleep(20)
    }
  }
}
