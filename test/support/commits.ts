import { expect, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import type { Tandem } from './tandem-process.ts'

/** Functions that commit a sync and wait for its states, for tests with a tandem process. */

/** Long enough on a busy machine. */
const timeoutSeconds = 120

export const accepted = { status: 200, body: { success: true } }

export const canCommit = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds, what: 'ready to commit' })

export const committed = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds, what: 'COMMITTED' })

export const failed = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds, what: 'FAILED' })

/** Commits the sync as soon as it can be committed, and resolves when it is COMMITTED. */
export async function commit(tandem: Tandem): Promise<Progress> {
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  return await committed(tandem)
}

/**
 * Does the same for a sync whose commit may be aborted once more, because a collection has to be copied again first. Sends
 * commit to all instances until they are COMMITTED.
 */
export async function commitAgain(...instances: Tandem[]): Promise<void> {
  const isCommitted = async (): Promise<boolean> => {
    // An instance that cannot commit yet, or has received the commit, refuses it.
    await Promise.all(instances.map((one) => one.post('commit')))
    const states = (await Promise.all(instances.map((one) => one.progress()))).map(({ state }) => state)
    expect(states).not.toContain('FAILED')
    return states.every((state) => state === 'COMMITTED')
  }
  await vi.waitUntil(isCommitted, { timeout: timeoutSeconds * 1_000, interval: 200 })
}
