import { afterEach, expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { ended } from '../support/cutover.ts'
import { expireAfterSeconds, seedForCutover } from '../support/cutover-data.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** Another instance takes over from a coordinator that crashed during a commit. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }
let instances: Instances | null = null

afterEach(async () => {
  await instances?.stop()
  instances = null
})

/** Commits with two instances, of which the coordinator crashes at this step, as by kill -9. Returns the other instance. */
async function successorAfterCrashAt(step: string): Promise<Tandem> {
  await seedForCutover(pair.sourceClient)
  const clusters = { cluster0: pair.source.uri, cluster1: pair.destination.uri }
  instances = await startInstances([], clusters)
  const first = await instances.start('a', { faults: { crashAt: step } })
  await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
  await startSync(first)
  const successor = await instances.start('b')
  await successor.waitFor(({ state }) => state === 'IDLE', { timeoutSeconds: 20, what: 'IDLE' })
  await startSync(successor)
  const [{ coordinatorID }] = (await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')) as [Progress]
  expect(coordinatorID).toBe('a')
  expectAccepted(await instances.post('commit'))
  await vi.waitFor(() => expect(first.isRunning()).toBe(false), patience)
  return successor
}

it('a verdict is valid only in the coordinator term that issued it, so the successor reports changes that were made on the destination after it', async () => {
  // This step lies between the verdict and the decision to enable writes on the destination.
  const successor = await successorAfterCrashAt('restoreExpiry')
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

it.each([
  ['prepareIndexes', 'the sizes of capped collections are restored'],
  ['decide', 'documents may expire on the destination again'],
])('the successor of a coordinator that crashed at %s (by then %s) reports no difference', async (step) => {
  const successor = await successorAfterCrashAt(step)
  const { state, failure } = await ended(successor)
  expect([state, failure]).toEqual(['COMMITTED', undefined])
  const [, index] = await pair.destinationClient.db('app').collection('expiring').indexes()
  expect(index?.['expireAfterSeconds']).toBe(expireAfterSeconds)
})
