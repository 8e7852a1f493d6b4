import { beforeEach, describe, expect, it, vi } from 'vitest'
import { pathOf } from '../../machines/sync-view.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { oneSet } from '../mongo/one-set.ts'
import * as members from './peer-members.ts'
import { isPending, type Member, never, syncStore } from './peer-members.ts'

/** What instances wait for, and what they ask of each other. */

const one = oneSet()
const member = (id: string, leading = false) => members.member(one, id, leading)
const failure = { error: 'VerificationFailed' as const, errorDescription: 'they differ' }
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
})

/** A coordinator and two others, all of whom have got the commit. */
async function committing(): Promise<[Member, Member, Member]> {
  const all: [Member, Member, Member] = [member('a', true), member('b'), member('c')]
  await all[0].team.report({ type: 'initialised' })
  await all[0].team.request(plainCommit)
  for (const each of all) await each.beat('COMMITTING')
  return all
}

const state = async () => pathOf(await syncStore(one).load())

describe('a commit', () => {
  it('begins when every living instance has got it; the one that has not is named', async () => {
    const [leader, , third] = await committing()
    await third.beat('RUNNING')
    const gathered = leader.team.gathered(never)
    expect(await isPending(gathered)).toBe(true)
    expect(leader.team.waitingFor).toEqual(['c'])
    await third.beat('COMMITTING')
    await gathered
    expect(leader.team.waitingFor).toEqual([])
  })

  it('waits for an instance that nobody hears of as long as its lease holds', async () => {
    const [leader] = await committing()
    leader.sees(['a', 'b', 'd'])
    const gathered = leader.team.gathered(never)
    expect(await isPending(gathered)).toBe(true)
    expect(leader.team.waitingFor).toEqual(['d'])
    leader.sees(['a', 'b'])
    await gathered
  })

  it('waits, and does not fail, while nobody can be heard of', async () => {
    const [leader] = await committing()
    const answers = vi.spyOn(MongoLiveness.prototype, 'instances').mockRejectedValue(new Error('no primary'))
    const gathered = leader.team.gathered(never)
    expect(await isPending(gathered)).toBe(true)
    answers.mockRestore()
    await gathered
  })

  it('does not wait for an instance that is lost', async () => {
    const [leader] = await committing()
    await member('d').beat('RUNNING')
    const stored = one.client.db('tandem_internal').collection<{ _id: string }>('members')
    await stored.updateOne({ _id: 'd' }, { $set: { at: new Date(1) } })
    await leader.team.gathered(never)
  })

  it('is not waited for by an instance that is told to stop', async () => {
    const [leader, , third] = await committing()
    await third.beat('RUNNING')
    const stop = new AbortController()
    const gathered = leader.team.gathered(stop.signal)
    stop.abort()
    await expect(gathered).rejects.toThrow(StoppedError)
  })

  it('is told to have failed by its coordinator alone, and once', async () => {
    const [leader, follower] = await committing()
    await follower.team.failed(failure)
    expect(await state()).toBe('committing.gathering')
    await leader.team.failed(failure)
    await leader.team.failed(failure)
    expect((await syncStore(one).load()).context).toMatchObject({ failure, failures: 1 })
    expect(await state()).toBe('failed')
  })

  it('lets nothing be applied while it is prepared and compared, and nothing ever once it is decided', async () => {
    const [leader, follower] = await committing()
    await leader.team.report({ type: 'commit.gathered' })
    await leader.team.report({ type: 'commit.pointTaken', commitPoint: '7' })
    await follower.team.untilApplicable(never)
    await leader.team.report({ type: 'commit.applied' })
    const applicable = follower.team.untilApplicable(never)
    expect(await isPending(applicable)).toBe(true)
    const stopped = expect(applicable).rejects.toThrow(StoppedError)
    for (const type of ['commit.prepared', 'commit.verified'] as const) await leader.team.report({ type })
    await leader.team.report({ type: 'commit.decided', quietUntil: '8' })
    await stopped
  })

  it('goes on with the reports of the newest term alone', async () => {
    const [leader, follower] = await committing()
    await leader.team.report({ type: 'commit.gathered' })
    follower.leads(true)
    await follower.team.load()
    await follower.team.elected()
    // The former coordinator has not heard of it.
    await leader.team.report({ type: 'commit.pointTaken', commitPoint: '6' })
    expect(await state()).toBe('committing.takingPoint')
    await follower.team.report({ type: 'commit.pointTaken', commitPoint: '7' })
    expect((await syncStore(one).load()).context).toMatchObject({ term: follower.term(), commitPoint: '7' })
  })
})

describe('an abort', () => {
  it('may come from any instance, counts once, and is too late once the commit is decided', async () => {
    const [leader, follower, third] = await committing()
    for (const each of [third, follower]) expect(await each.team.abort(0, { reason: 'too slow' })).toBe(true)
    expect((await syncStore(one).load()).context).toMatchObject({ aborts: 1, abortReason: 'too slow', request: null })
    await leader.team.report({ type: 'commit.undone', aborts: 1 })
    await leader.team.request(plainCommit)
    await leader.team.report({ type: 'commit.gathered' })
    await leader.team.report({ type: 'commit.pointTaken', commitPoint: '7' })
    for (const type of ['commit.applied', 'commit.prepared', 'commit.verified'] as const)
      await leader.team.report({ type })
    await leader.team.report({ type: 'commit.decided', quietUntil: '8' })
    for (const each of [leader, follower]) expect(await each.team.abort(1)).toBe(false)
    expect(await state()).toBe('decided.opening')
  })

  it('may be followed by another commit at once, which begins when it is undone', async () => {
    const [leader] = await committing()
    await leader.team.abort(0)
    expect(await leader.team.request(plainCommit)).toBe(1)
    expect(await state()).toBe('undoing')
    await leader.team.report({ type: 'commit.undone', aborts: 1 })
    expect(await state()).toBe('committing.gathering')
  })
})

describe('a request', () => {
  it('is the same for all who are at the commit; what nobody is at any more binds nobody', async () => {
    const [leader, follower, third] = await committing()
    await leader.team.abort(0)
    await leader.team.report({ type: 'commit.undone', aborts: 1 })
    for (const each of [follower, third]) await each.beat('RUNNING')
    const rehearsal = { dryRun: true, maxSeconds: null }
    await leader.team.request(rehearsal)
    await expect(follower.team.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    expect(await follower.team.request(rehearsal)).toBe(1)
    // Also while the one that was asked has not begun.
    await leader.beat('RUNNING')
    await expect(follower.team.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    const stages = one.client.db('tandem_internal').collection('stages')
    await stages.updateOne({}, { $set: { 'context.request.at': Date.now() - 10_001 } })
    expect(await follower.team.request(plainCommit)).toBe(1)
    expect((await syncStore(one).load()).context.request).toMatchObject(plainCommit)
  })

  it('of an instance that is alone is replaced: what it had asked for before it died binds nobody', async () => {
    const only = member('a', true)
    await only.team.report({ type: 'initialised' })
    await only.beat('RUNNING')
    await only.team.request({ dryRun: true, maxSeconds: 5 })
    expect(await only.team.request(plainCommit)).toBe(0)
    expect((await syncStore(one).load()).context.request).toMatchObject(plainCommit)
  })

  it('is refused where there is no sync that could commit', async () => {
    await expect(member('a', true).team.request(plainCommit)).rejects.toMatchObject({ refusal: 'WrongState' })
  })
})
