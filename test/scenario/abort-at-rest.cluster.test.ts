import { expect, it } from 'vitest'
import { accepted } from '../support/commits.ts'
import { failPoint, holdTandem } from '../support/fail-point.ts'
import { abortedPair } from './abort-at-rest.ts'

/** An instance that fails during an abort still undoes the commit, because users wait until the source is unblocked. */

const { pair, duringCommit, ready, unblocked, expectCommits } = abortedPair()

it('an instance that fails during an abort still unblocks the source, and commits after a resume', async () => {
  await using tandem = await ready()
  const refused = { failCommands: ['setUserWriteBlockMode'], errorCode: 96 }
  await duringCommit(tandem, async () => {
    // The error is not transient, so the instance fails.
    await failPoint(pair.sourceClient, 'failCommand', refused, { times: 1 })
    expect(await tandem.post('abort')).toEqual(accepted)
    const failed = await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 20, what: 'FAILED' })
    expect(failed.failure?.errorDescription).toMatch(/96/)
  })
  await unblocked()
  expect((await tandem.progress()).state).toBe('FAILED')
  expect(await tandem.post('resume')).toEqual(accepted)
  await expectCommits(tandem)
})

it('until an abort has ended, canCommit is false, and another commit is refused with the reason', async () => {
  await using tandem = await ready()
  await duringCommit(tandem, async () => {
    // From now on tandem cannot defer the options of any collection again, so the abort cannot end.
    await using _ = await holdTandem(pair.destinationClient, 'collMod')
    expect(await tandem.post('abort')).toEqual(accepted)
    await unblocked()
    const progress = await tandem.progress()
    expect(progress).toMatchObject({ state: 'RUNNING', canCommit: false })
    const refusal = expect.stringMatching(/aborted.*being undone/)
    expect(progress.warnings).toContainEqual(refusal)
    expect(await tandem.post('commit')).toMatchObject({
      status: 409,
      body: { error: 'CannotCommit', errorDescription: refusal },
    })
  })
  await expectCommits(tandem)
})
