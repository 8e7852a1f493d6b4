import { afterEach, describe, expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { accepted, canCommit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectDeferred, wrongState } from '../support/cutover.ts'
import { seedForCutover, things } from '../support/cutover-data.ts'
import { failPoint, holdTandem } from '../support/fail-point.ts'
import { expectAccepted, type Instances, startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { slowness } from '../support/slowness.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** Before `canWrite`, a commit is undone in three ways: by `abort`, as a rehearsal (`dryRun`), or by its time limit (`maxSeconds`). */

const pair = pairedSets()
const patience = { timeout: 20_000, interval: 20 }
const soon = { timeout: 3_000, interval: 20 }
const blocking = { enableUserWriteBlocking: 'sourceAndDestination' }

interface Rehearsal {
  at: string
  steps: { step: string; seconds: number }[]
  outageSeconds: number
  verdict: unknown
}
let instances: Instances | null = null

afterEach(async () => {
  await instances?.stop()
  instances = null
})

const lastRehearsal = (progress: Progress) => (progress as Progress & { lastRehearsal?: Rehearsal }).lastRehearsal

const running = (tandem: Tandem): Promise<Progress> =>
  tandem.waitFor(({ state }) => state === 'RUNNING', { timeoutSeconds: 20, what: 'RUNNING again' })

/** Starts a sync that blocks the source during the commit, and waits until it is ready to commit. */
async function ready(): Promise<Tandem> {
  await seedForCutover(pair.sourceClient)
  const tandem = await pair.startInstance()
  await startSync(tandem, blocking)
  await canCommit(tandem)
  return tandem
}

/** Holds a commit at the collMod that restores the expiry of `app.expiring`, shortly before it enables writes. */
const holdBeforeDecision = () => holdTandem(pair.destinationClient, 'collMod', 'app.expiring')

/** Expects that the source accepts writes, that the sync applies them, and that a commit succeeds with them. */
async function expectGoesOn(...instances: Tandem[]): Promise<void> {
  await vi.waitFor(async () => {
    expect(await writesBlocked(pair.sourceClient)).toBe(false)
    await expectDeferred(pair)
  }, soon)
  await things(pair.sourceClient).insertOne({ _id: 7001, u: 7001, by: 'the application' })
  // The deleted and the inserted document have the same unique value.
  await things(pair.sourceClient).deleteOne({ _id: 8 })
  await things(pair.sourceClient).insertOne({ _id: 'takes over', u: 8 })
  const onDestination = things(pair.destinationClient)
  await vi.waitFor(async () => expect(await onDestination.findOne({ _id: 'takes over' })).not.toBeNull(), patience)
  for (const tandem of instances) await canCommit(tandem)
  for (const tandem of instances) expect(await tandem.post('commit')).toEqual(accepted)
  for (const tandem of instances) expect((await committed(tandem)).canWrite).toBe(true)
  expect(await writesBlocked(pair.destinationClient)).toBe(false)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

describe('abort', () => {
  it('leads from COMMITTING to RUNNING within 3 seconds, unblocks the source and defers constraints again, and a second commit succeeds', async () => {
    await using tandem = await ready()
    expect(await tandem.post('abort')).toMatchObject(wrongState)
    {
      await using held = await holdBeforeDecision()
      expect(await tandem.post('commit')).toEqual(accepted)
      await held.reached()
      expect(await writesBlocked(pair.sourceClient)).toBe(true)
      const limit = 3_000 * (await slowness())
      const since = performance.now()
      expect(await tandem.post('abort')).toEqual(accepted)
      expect((await running(tandem)).canWrite).toBe(false)
      expect(performance.now() - since).toBeLessThan(limit)
    }
    await expectGoesOn(tandem)
    expect(await tandem.post('abort')).toMatchObject(wrongState)
  })

  it('leaves the estimate of the next commit as it was before', async () => {
    await using tandem = await ready()
    const indexes = Array.from({ length: 30 }, (_, number) => ({
      key: { [`u${number}`]: 1 },
      unique: true,
      sparse: true,
    }))
    await pair.sourceClient.db('app').collection('unique').createIndexes(indexes)
    const waits = async (): Promise<string[]> =>
      (await tandem.progress()).commit?.waitingFor.map(({ what }) => what) ?? []
    await vi.waitFor(async () => expect(await waits()).toContain('unique indexes to be converted'), patience)
    {
      await using held = await holdBeforeDecision()
      expect(await tandem.post('commit')).toEqual(accepted)
      await held.reached()
      expect(await waits()).not.toContain('unique indexes to be converted')
      expect(await tandem.post('abort')).toEqual(accepted)
      await running(tandem)
    }
    await vi.waitFor(async () => expect(await waits()).toContain('unique indexes to be converted'), soon)
  })

  it('leads to RUNNING from the FAILED state of a commit, in which a resume would commit again', async () => {
    await using tandem = await ready()
    const write = (u: number) =>
      pair.destinationClient.db('app').command({
        update: 'things',
        updates: [{ q: { _id: 7 }, u: { $set: { u } } }],
        mayBypassWriteBlocking: true,
      })
    const before = await things(pair.destinationClient).findOne({ _id: 7 })
    await write(-7)
    expect(await tandem.post('commit')).toEqual(accepted)
    const failed = await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'FAILED' })
    expect(failed.failure?.error).toBe('VerificationFailed')
    expect(await writesBlocked(pair.sourceClient)).toBe(true)
    expect(await tandem.post('abort')).toEqual(accepted)
    expect(await running(tandem)).toMatchObject({ canWrite: false })
    await write(Number(before?.['u']))
    await expectGoesOn(tandem)
  })

  it('that one instance receives ends the commit on all instances', async () => {
    await seedForCutover(pair.sourceClient)
    instances = await startInstances(['a', 'b'], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
    await instances.allReach(({ state }) => state === 'IDLE', 'IDLE')
    expectAccepted(await instances.post('start', { source: 'cluster0', destination: 'cluster1', ...blocking }))
    await instances.allReach(({ canCommit }) => canCommit, 'ready to commit')
    const coordinator = await instances.coordinator()
    const [follower] = [...instances.members.values()].filter((tandem) => tandem !== coordinator) as [Tandem]
    // This commit waits until the other instance receives the command.
    expect(await coordinator.post('commit')).toEqual(accepted)
    expect(await coordinator.post('abort')).toEqual(accepted)
    for (const tandem of [coordinator, follower]) await canCommit(tandem)
    {
      await using held = await failPoint(pair.destinationClient, 'failCommand', {
        failCommands: ['collMod'],
        namespace: 'app.expiring',
        errorCode: 262, // a retryable error
      })
      expectAccepted(await instances.post('commit'))
      await held.reached()
      expect(await follower.post('abort')).toEqual(accepted)
      for (const tandem of [coordinator, follower]) expect((await running(tandem)).canWrite).toBe(false)
    }
    await expectGoesOn(coordinator, follower)
  })

  it('is completed after a restart if the instance crashes after it has acknowledged the abort', async () => {
    {
      await using tandem = await ready()
      await using held = await holdBeforeDecision()
      expect(await tandem.post('commit')).toEqual(accepted)
      await held.reached()
      expect(await tandem.post('abort')).toEqual(accepted)
      await tandem.kill9()
    }
    await using tandem = await pair.startInstance()
    expect((await running(tandem)).canWrite).toBe(false)
    await expectGoesOn(tandem)
  })
})

it('a rehearsal (dryRun) reports the write outage and its verdict, and returns to RUNNING by itself with the destination blocked', async () => {
  await using tandem = await ready()
  const rehearse = async (): Promise<Rehearsal> => {
    // Wait until the sync has undone the previous rehearsal.
    const before = lastRehearsal(await canCommit(tandem))?.at
    expect(await tandem.post('commit', { dryRun: true })).toEqual(accepted)
    const isRehearsed = (now: Progress) => now.state === 'RUNNING' && (lastRehearsal(now)?.at ?? before) !== before
    const progress = await tandem.waitFor(isRehearsed, { timeoutSeconds: 20, what: 'rehearsed' })
    expect(progress.canWrite).toBe(false)
    return lastRehearsal(progress) as Rehearsal
  }
  const setBy = async (by: string): Promise<void> => {
    const updates = [{ q: { _id: 7 }, u: { $set: { by } } }]
    await pair.destinationClient.db('app').command({ update: 'things', updates, mayBypassWriteBlocking: true })
  }
  const watching = watchWriteBlocking()
  const [equal, different] = await (async () => {
    const first = await rehearse()
    await setBy('a foreign write')
    return [first, await rehearse()] as const
  })().finally(watching.stop)
  expect(watching.observed).toEqual({ sourceBlocked: true, destinationUnblocked: false })
  for (const { at, steps, outageSeconds } of [equal, different]) {
    expect(Math.abs(Date.now() - Date.parse(at))).toBeLessThan(60_000)
    expect(steps).not.toEqual([])
    for (const { step, seconds } of steps) expect([step !== '', seconds >= 0]).toEqual([true, true])
    expect(outageSeconds).toBeGreaterThan(0)
    expect(outageSeconds).toBeLessThan(20)
  }
  expect(JSON.stringify(equal.verdict)).not.toMatch(/VerificationFailed|differ/)
  expect(JSON.stringify(different.verdict)).toMatch(/VerificationFailed|differ/)
  await setBy('seed')
  await expectGoesOn(tandem)
})

it('a commit that does not reach canWrite within maxSeconds is aborted, and a warning names the step for which it waited', async () => {
  await using tandem = await ready()
  {
    await using _ = await holdTandem(pair.destinationClient, 'collMod', 'app.things')
    expect(await tandem.post('commit', { maxSeconds: 1 })).toEqual(accepted)
    await vi.waitFor(async () => expect(await writesBlocked(pair.sourceClient)).toBe(true), patience)
    const { canWrite, warnings } = await running(tandem)
    expect(canWrite).toBe(false)
    expect(warnings).toContainEqual(expect.stringMatching(/maxSeconds.*waited for .*indexes to be prepared/))
  }
  await expectGoesOn(tandem)
})

/** Polls the write blocking of both clusters until `stop` is called. */
function watchWriteBlocking() {
  const stopped = new AbortController()
  const watching = {
    observed: { sourceBlocked: false, destinationUnblocked: false },
    stop: async (): Promise<void> => {},
  }
  const polling = (async () => {
    while (!stopped.signal.aborted) {
      if (await writesBlocked(pair.sourceClient)) watching.observed.sourceBlocked = true
      if (!(await writesBlocked(pair.destinationClient))) watching.observed.destinationUnblocked = true
    }
  })()
  watching.stop = async () => {
    stopped.abort()
    await polling
  }
  return watching
}
