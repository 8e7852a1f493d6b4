import { Timestamp } from 'mongodb'
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { pathOf } from '../../machines/sync-view.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { oneSet } from '../mongo/one-set.ts'
import * as members from './peer-members.ts'
import { isPending, type Member, never, syncStore } from './peer-members.ts'

/** Instances wait for each other, and send requests to each other. */

const one = oneSet()
const member = (id: string, leading = false) => members.member(one, id, leading)
const failure = { error: 'VerificationFailed' as const, errorDescription: 'they differ' }
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
})

/** Creates a coordinator and two other instances, which have all received the commit. */
async function committing(): Promise<[Member, Member, Member]> {
  const all: [Member, Member, Member] = [member('a', true), member('b'), member('c')]
  await all[0].peers.report({ type: 'initialised' })
  await all[0].peers.request(plainCommit)
  for (const each of all) await each.publish('COMMITTING')
  return all
}

const state = async () => pathOf(await syncStore(one).load())

describe('the known state', () => {
  it('is current while nothing is to be done and a recent round has read the same revision', async () => {
    const [leader, other] = [member('a', true), member('b')]
    leader.reads(null, 0)
    expect(leader.peers.isCurrent).toBe(false) // It was not loaded.
    await leader.peers.report({ type: 'initialised' })
    await other.peers.load()
    const { revision } = other.peers.view
    other.reads(revision, 0)
    expect(other.peers.isCurrent).toBe(true)
    other.reads(revision, 5_000)
    expect(other.peers.isCurrent).toBe(false)
    await leader.peers.request(plainCommit)
    other.reads(revision + 1, 0)
    expect(other.peers.isCurrent).toBe(false)
    await other.peers.load()
    expect(other.peers.view.revision).toBe(revision + 1)
    expect(other.peers.isCurrent).toBe(false) // A commit is in progress.
  })
})

describe('a commit', () => {
  it('begins when every live instance has received it, and names the instances that have not', async () => {
    const [leader, , third] = await committing()
    await third.publish('RUNNING')
    const gathered = leader.peers.gathered(never)
    expect(await isPending(gathered)).toBe(true)
    expect(leader.peers.waitingFor).toEqual(['c'])
    await third.publish('COMMITTING')
    await gathered
    expect(leader.peers.waitingFor).toEqual([])
  })

  it('waits for an instance without heartbeats as long as that instance holds its lease', async () => {
    const [leader] = await committing()
    leader.observes(['a', 'b', 'd'])
    const gathered = leader.peers.gathered(never)
    expect(await isPending(gathered)).toBe(true)
    expect(leader.peers.waitingFor).toEqual(['d'])
    leader.observes(['a', 'b'])
    await gathered
  })

  it('waits, and does not fail, while the liveness store does not answer', async () => {
    const [leader] = await committing()
    const answers = vi.spyOn(MongoLiveness.prototype, 'instances').mockRejectedValue(new Error('no primary'))
    const gathered = leader.peers.gathered(never)
    expect(await isPending(gathered)).toBe(true)
    answers.mockRestore()
    await gathered
  })

  it('does not wait for an instance that is lost', async () => {
    const [leader] = await committing()
    await member('d').publish('RUNNING')
    const stored = one.client.db(metadataDatabase).collection<{ _id: string }>('members')
    await stored.updateOne({ _id: 'd' }, { $set: { clusterTime: new Timestamp({ t: 1, i: 1 }) } })
    await leader.peers.gathered(never)
  })

  it('stops waiting when its signal is aborted', async () => {
    const [leader, , third] = await committing()
    await third.publish('RUNNING')
    const stop = new AbortController()
    const gathered = leader.peers.gathered(stop.signal)
    stop.abort()
    await expect(gathered).rejects.toThrow(StoppedError)
  })

  it('fails only when its coordinator reports a failure, and counts a repeated report once', async () => {
    const [leader, follower] = await committing()
    await follower.peers.failed(failure)
    expect(await state()).toBe('committing.gathering')
    await leader.peers.failed(failure)
    await leader.peers.failed(failure)
    expect((await syncStore(one).load()).context).toMatchObject({ failure, failures: 1 })
    expect(await state()).toBe('failed')
  })

  it('prevents changes from being applied while it is prepared and verified, and for good once it is decided', async () => {
    const [leader, follower] = await committing()
    await leader.peers.report({ type: 'commit.gathered' })
    await leader.peers.report({ type: 'commit.timestampTaken', commitTimestamp: '7' })
    await follower.peers.untilApplicable(never)
    await leader.peers.report({ type: 'commit.applied' })
    const applicable = follower.peers.untilApplicable(never)
    expect(await isPending(applicable)).toBe(true)
    const stopped = expect(applicable).rejects.toThrow(StoppedError)
    for (const type of ['commit.prepared', 'commit.verified'] as const) await leader.peers.report({ type })
    await leader.peers.report({ type: 'commit.decided', quietUntil: '8' })
    await stopped
  })

  it('accepts only the reports of the newest term', async () => {
    const [leader, follower] = await committing()
    await leader.peers.report({ type: 'commit.gathered' })
    follower.leads(true)
    await follower.peers.load()
    await follower.peers.elected()
    // The former coordinator does not know of the new term yet.
    await leader.peers.report({ type: 'commit.timestampTaken', commitTimestamp: '6' })
    expect(await state()).toBe('committing.takingTimestamp')
    await follower.peers.report({ type: 'commit.timestampTaken', commitTimestamp: '7' })
    expect((await syncStore(one).load()).context).toMatchObject({ term: follower.term(), commitTimestamp: '7' })
  })
})

describe('an abort', () => {
  it('may be sent by any instance, counts once, and is too late once the commit is decided', async () => {
    const [leader, follower, third] = await committing()
    for (const each of [third, follower]) expect(await each.peers.abort(0, { reason: 'too slow' })).toBe(true)
    expect((await syncStore(one).load()).context).toMatchObject({ aborts: 1, abortReason: 'too slow', request: null })
    await leader.peers.report({ type: 'commit.undone', aborts: 1 })
    await leader.peers.request(plainCommit)
    await leader.peers.report({ type: 'commit.gathered' })
    await leader.peers.report({ type: 'commit.timestampTaken', commitTimestamp: '7' })
    for (const type of ['commit.applied', 'commit.prepared', 'commit.verified'] as const)
      await leader.peers.report({ type })
    await leader.peers.report({ type: 'commit.decided', quietUntil: '8' })
    for (const each of [leader, follower]) expect(await each.peers.abort(1)).toBe(false)
    expect(await state()).toBe('decided.opening')
  })

  it('may be followed at once by another commit, which begins when the aborted commit is undone', async () => {
    const [leader] = await committing()
    await leader.peers.abort(0)
    expect(await leader.peers.request(plainCommit)).toBe(1)
    expect(await state()).toBe('undoing')
    await leader.peers.report({ type: 'commit.undone', aborts: 1 })
    expect(await state()).toBe('committing.gathering')
  })
})

describe('a request', () => {
  it('is the same for all instances of the commit, and no longer binding when no instance follows it', async () => {
    const [leader, follower, third] = await committing()
    await leader.peers.abort(0)
    await leader.peers.report({ type: 'commit.undone', aborts: 1 })
    for (const each of [follower, third]) await each.publish('RUNNING')
    const rehearsal = { dryRun: true, maxSeconds: null }
    await leader.peers.request(rehearsal)
    await expect(follower.peers.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    expect(await follower.peers.request(rehearsal)).toBe(1)
    // The request is also binding while the instance that received it has not begun.
    await leader.publish('RUNNING')
    await expect(follower.peers.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    const stages = one.client.db(metadataDatabase).collection('stages')
    const { clusterTime: now } = syncStore(one)
    const elevenSecondsAgo = (now - (11n << 32n)).toString()
    await stages.updateOne({}, { $set: { 'context.request.atClusterTime': elevenSecondsAgo } })
    expect(await follower.peers.request(plainCommit)).toBe(1)
    expect((await syncStore(one).load()).context.request).toMatchObject(plainCommit)
  })

  it('is binding for an instance on a host whose clock is ahead', async () => {
    const all = await committing()
    const [leader, follower] = all
    await leader.peers.abort(0)
    await leader.peers.report({ type: 'commit.undone', aborts: 1 })
    for (const each of all) await each.publish('RUNNING')
    const rehearsal = { dryRun: true, maxSeconds: null }
    await leader.peers.request(rehearsal)
    const now = Date.now()
    vi.spyOn(Date, 'now').mockImplementation(() => now + 60_000)
    onTestFinished(() => void vi.restoreAllMocks())
    await expect(follower.peers.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    expect((await syncStore(one).load()).context.request).toMatchObject(rehearsal)
  })

  it('that an earlier release stored has no cluster time, and is replaced when the clocks say that it is old', async () => {
    const all = await committing()
    const [, follower] = all
    for (const each of all) await each.publish('RUNNING')
    const stages = one.client.db(metadataDatabase).collection('stages')
    const rehearsal = { dryRun: true, maxSeconds: null }
    await stages.updateOne({}, { $set: { 'context.request': { ...rehearsal, at: Date.now() } } })
    await expect(follower.peers.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    await stages.updateOne({}, { $set: { 'context.request.at': Date.now() - 10_001 } })
    expect(await follower.peers.request(plainCommit)).toBe(0)
  })

  it('of an instance that is alone is replaced by its next request', async () => {
    const only = member('a', true)
    await only.peers.report({ type: 'initialised' })
    await only.publish('RUNNING')
    await only.peers.request({ dryRun: true, maxSeconds: 5 })
    expect(await only.peers.request(plainCommit)).toBe(0)
    expect((await syncStore(one).load()).context.request).toMatchObject(plainCommit)
  })

  it('is refused when no sync exists that could commit', async () => {
    await expect(member('a', true).peers.request(plainCommit)).rejects.toMatchObject({ refusal: 'WrongState' })
  })
})
