import { afterEach, expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { ended } from '../support/cutover.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'
import { expectAccepted, startTeam, type Team } from '../support/team.ts'

/** Another instance takes over from a coordinator that died in the middle of a commit. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }
let team: Team | null = null

afterEach(async () => {
  await team?.stop()
  team = null
})

it('a verdict counts only in the term in which it was reached: what changed on the destination since is named by the successor', async () => {
  await seedForCutover(pair.sourceClient)
  const clusters = { cluster0: pair.source.uri, cluster1: pair.destination.uri }
  team = await startTeam([], clusters)
  // Between the verdict and the decision that users may write on the destination.
  const first = await team.start('a', { faults: { crashAt: 'restoreExpiry' } })
  await team.allReach(({ state }) => state === 'IDLE', 'IDLE')
  await startSync(first)
  const successor = await team.start('b')
  await successor.waitFor(({ state }) => state === 'IDLE', { timeoutSeconds: 20, what: 'IDLE' })
  await startSync(successor)
  const [{ coordinatorID }] = (await team.allReach(({ canCommit }) => canCommit, 'ready to commit')) as [Progress]
  expect(coordinatorID).toBe('a')
  expectAccepted(await team.post('commit'))
  await vi.waitFor(() => expect(first.isRunning()).toBe(false), patience)
  await pair.destinationClient.db('app').command({
    update: 'things',
    updates: [{ q: { _id: 7 }, u: { $set: { by: 'a foreign write' } } }],
    mayBypassWriteBlocking: true,
  })
  const { state, failure, canWrite } = await ended(successor)
  expect([state, failure?.error, canWrite]).toEqual(['FAILED', 'VerificationFailed', false])
  const answer = await fetch(`${successor.url}/api/v1/verification/mismatches`)
  expect(await answer.json()).toMatchObject({
    mismatches: [{ namespace: 'app.things', kind: 'content', id: { $numberInt: '7' }, by: 'foreignWrite' }],
    total: 1,
  })
})
