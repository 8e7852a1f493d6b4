import { expect } from 'vitest'
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
 * Does the same for a sync whose commit may be aborted once more, because a collection has to be copied again first.
 * @param send sends commit to all instances
 */
export async function commitAgain(
  tandem: Tandem,
  send: () => Promise<unknown> = () => tandem.post('commit'),
): Promise<Progress> {
  for (;;) {
    await canCommit(tandem)
    await send()
    const found = await tandem.waitFor(
      ({ state, canCommit: isReady }) =>
        state === 'COMMITTED' || state === 'FAILED' || (state === 'RUNNING' && isReady),
      { timeoutSeconds, what: 'COMMITTED, or ready to commit again' },
    )
    if (found.state === 'RUNNING') continue
    expect(found).toMatchObject({ state: 'COMMITTED' })
    return found
  }
}
