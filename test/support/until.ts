import { setTimeout as sleep } from 'node:timers/promises'

/** Asks again until it no longer throws; outside of tests, where `vi.waitFor` is not to be had. */
export async function until<T>(what: string, ask: () => Promise<T>, timeoutSeconds = 90): Promise<T> {
  const deadline = Date.now() + timeoutSeconds * 1_000
  for (;;) {
    try {
      return await ask()
    } catch (error) {
      if (Date.now() > deadline) throw new Error(`not ${what} after ${timeoutSeconds} s`, { cause: error })
      await sleep(20)
    }
  }
}
