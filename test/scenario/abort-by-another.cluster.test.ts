import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, canCommit, commit, failed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { wrongState } from '../support/cutover.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { failPoint } from '../support/fail-point.ts'
import { expectAccepted, type Instances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** When the only instance that has received a commit is gone, another instance can abort the commit. */

const pair = pairedSets()
const body = { source: 'cluster0', destination: 'cluster1', enableUserWriteBlocking: 'sourceAndDestination' }
const patience = { timeout: 90_000, interval: 50 }
/** Matches the warning of an instance that has not received the commit. It names the command to send. */
const notReceived = (command: string) => expect.stringMatching(new RegExp(`has not received the commit.*${command}`))

const warns = (tandem: Tandem, warning: unknown): Promise<void> =>
  vi.waitFor(async () => expect((await tandem.progress()).warnings ?? []).toContainEqual(warning), patience)

const coordinates = (tandem: Tandem, id: string): Promise<unknown> =>
  tandem.waitFor(({ coordinatorID }) => coordinatorID === id, { timeoutSeconds: 90, what: 'the coordinator' })

/** Waits until the sync as a whole replicates again. */
async function replicates(): Promise<void> {
  const stages = pair.destinationClient.db(metadataDatabase).collection('stages')
  await vi.waitFor(async () => {
    expect(await stages.findOne({ _id: 'sync' as never })).toMatchObject({ value: 'replicating' })
    expect(await writesBlocked(pair.sourceClient)).toBe(false)
  }, patience)
}

async function expectCommits(tandem: Tandem): Promise<void> {
  await commit(tandem)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
}

/** Starts two instances, sends a commit to the first one only, and kills that one. Returns the other one as `left`. */
async function orphaned(request: Record<string, unknown>): Promise<{ all: Instances; left: Tandem }> {
  await seedForCutover(pair.sourceClient)
  const all = await pair.startInstances('a', 'b')
  await all.allReach(({ state }) => state === 'IDLE', 'IDLE')
  expectAccepted(await all.post('start', body))
  await all.allReach((progress) => progress.canCommit, 'ready to commit')
  const [first, left] = [all.members.get('a'), all.members.get('b')] as [Tandem, Tandem]
  expect(await first.post('commit', request)).toEqual(accepted)
  await all.kill9('a')
  return { all, left }
}

it('an instance that joins after a commit has failed and the committing instance has stopped shows a warning, and can abort the commit', async () => {
  await seedForCutover(pair.sourceClient)
  const write = (u: number) =>
    pair.destinationClient.db('app').command({
      update: 'things',
      updates: [{ q: { _id: 7 }, u: { $set: { u } } }],
      mayBypassWriteBlocking: true,
    })
  {
    await using first = await pair.startInstance({ id: 'a' })
    await startSync(first, { enableUserWriteBlocking: body.enableUserWriteBlocking })
    await canCommit(first)
    await write(-7)
    expect(await first.post('commit')).toEqual(accepted)
    expect((await failed(first)).failure?.error).toBe('VerificationFailed')
  }
  await using joined = await pair.startInstance({ id: 'b' })
  expect(await joined.post('start', body)).toMatchObject(accepted)
  await coordinates(joined, 'b')
  await warns(joined, notReceived('tandem commit'))
  expect(await writesBlocked(pair.sourceClient)).toBe(true)
  expect(await joined.post('resync', { namespaces: [{ database: 'app', collection: 'things' }] })).toMatchObject({
    status: 409,
    body: { error: 'WrongState', errorDescription: expect.stringMatching(/a commit is under way.*abort/) },
  })
  expect(await joined.post('abort')).toEqual(accepted)
  await replicates()
  expect(await joined.post('abort')).toMatchObject(wrongState)
  expect((await joined.progress()).warnings ?? []).not.toContainEqual(notReceived(''))
  await write(7)
  await expectCommits(joined)
})

it('a paused instance that has not received the commit can abort it, and its warning names the maxSeconds of the commit', async () => {
  const { all, left } = await orphaned({ maxSeconds: 600 })
  await using _ = all
  await coordinates(left, 'b')
  await warns(left, notReceived('tandem commit --max-seconds 600'))
  expect(await left.post('pause')).toEqual(accepted)
  await warns(left, notReceived('tandem commit --max-seconds 600'))
  expect(await left.post('abort')).toEqual(accepted)
  await replicates()
  expect(await left.post('resume')).toEqual(accepted)
  await expectCommits(left)
})

it('maxSeconds ends a commit whose only instance has died', async () => {
  const { all, left } = await orphaned({ maxSeconds: 5 })
  await using _ = all
  await warns(left, expect.stringMatching(/^the commit was aborted because its maxSeconds had passed/))
  await replicates()
  await expectCommits(left)
})

it('a failed instance that has not received the commit can abort it, and then continues', async () => {
  const { all, left } = await orphaned({})
  await using _ = all
  await coordinates(left, 'b')
  {
    const lost = { failCommands: ['getMore', 'aggregate'], errorCode: 286 }
    await using _ = await failPoint(pair.sourceClient, 'failCommand', lost)
    expect((await failed(left)).failure?.error).toBe('OplogWindowLost')
    expect(await left.post('resume')).toMatchObject({
      status: 409,
      body: { error: 'WrongState', errorDescription: expect.stringMatching(/Send abort/) },
    })
    // tandem passes a command to all instances on to each instance that it does not know to be lost.
    await vi.waitFor(async () => {
      const { instances } = await all.instances()
      expect(instances.find(({ mongosyncID }) => mongosyncID === 'a')?.status).toBe('lost')
    }, patience)
    expect(await left.post('all/abort')).toMatchObject({ status: 200, body: { success: true } })
    await replicates()
  }
  expect(await left.post('resume')).toEqual(accepted)
  await expectCommits(left)
})
