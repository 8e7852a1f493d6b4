import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { AbortedError, PassedError, RenewedError } from '../../src/coordination/team.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { FatalError } from '../../src/domain/errors.ts'
import { oneSet } from '../mongo/one-set.ts'
import * as members from './team-members.ts'
import { forbidden, isPending, type Member, never } from './team-members.ts'

/** The steps of a commit, attempts that fail, are given up and begun anew. */

const one = oneSet()
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
  // As it is when the first commit is asked for.
  await stages().set({ initialised: true })
})
const stages = () => members.stages(one)
const member = (id: string, leading = false) => members.member(one, id, leading)

/** A coordinator and two others, all of whom have got the commit. */
async function committing(): Promise<[Member, Member, Member]> {
  const all: [Member, Member, Member] = [member('a', true), member('b'), member('c')]
  for (const each of all) await each.beat('COMMITTING')
  return all
}

const pointOf = (one: Member, point = '7') => one.team.commitPoint(async () => point, 0, never)
/** Nothing was aborted, so the source is not unblocked. */
const undo = (holdBack: () => Promise<void>) => ({ holdBack, unblockSource: forbidden })
const failure = { error: 'VerificationFailed' as const, errorDescription: 'they differ' }

describe('a commit', () => {
  it('begins when every living instance has got it; the one that has not is named', async () => {
    const [leader, follower, third] = await committing()
    await third.beat('RUNNING')
    const points = [pointOf(leader), follower.team.commitPoint(forbidden, 0, never)]
    expect(await isPending(Promise.race(points))).toBe(true)
    expect([leader.team.waitingFor, follower.team.waitingFor]).toEqual([['c'], ['c']])
    await third.beat('COMMITTING')
    points.push(third.team.commitPoint(forbidden, 0, never))
    expect(await Promise.all(points)).toEqual(new Array(3).fill({ attempt: 1, point: '7' }))
    expect([leader.team.waitingFor, follower.team.waitingFor]).toEqual([[], []])
    expect(await third.team.joinable()).toMatchObject({ abortsBefore: 0 })
  })

  it('waits for an instance that nobody hears of as long as its lease holds', async () => {
    const [leader] = await committing()
    leader.sees(['a', 'b', 'd'])
    const point = pointOf(leader)
    expect(await isPending(point)).toBe(true)
    expect(leader.team.waitingFor).toEqual(['d'])
    leader.sees(['a', 'b'])
    expect(await point).toEqual({ attempt: 1, point: '7' })
  })

  it('that has allowed writes leaves nothing to apply to whoever comes then', async () => {
    const [leader, , third] = await committing()
    await third.team.insistOnOpen()
    const { attempt } = await pointOf(leader)
    await leader.team.step('verified', { attempt, abortsBefore: 0 }, async () => {}, never)
    await third.team.insistOnOpen()
    await leader.team.step('canWrite', { attempt, abortsBefore: 0 }, async () => {}, never)
    await expect(third.team.insistOnOpen()).rejects.toThrow(PassedError)
  })

  it('waits, and does not fail, while nobody can be heard of', async () => {
    const [leader, follower] = await committing()
    const answers = vi.spyOn(MongoLiveness.prototype, 'instances').mockRejectedValue(new Error('no primary'))
    const points = [pointOf(leader), follower.team.commitPoint(forbidden, 0, never)]
    expect(await isPending(Promise.race(points))).toBe(true)
    answers.mockRestore()
    expect(await Promise.all(points)).toEqual(new Array(2).fill({ attempt: 1, point: '7' }))
  })

  it('does not wait for an instance that is lost', async () => {
    const [leader] = await committing()
    await member('d').beat('RUNNING')
    const members = one.client.db('tandem_internal').collection<{ _id: string }>('members')
    await members.updateOne({ _id: 'd' }, { $set: { at: new Date(1) } })
    expect(await pointOf(leader)).toEqual({ attempt: 1, point: '7' })
  })

  it('goes through its steps in order, each done once, and late comers find them done', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await pointOf(leader)
    const order: string[] = []
    for (const step of ['prepared', 'verified', 'canWrite', 'committed'] as const) {
      const waiting = follower.team.step(step, { attempt, abortsBefore: 0 }, forbidden, never)
      await leader.team.step(step, { attempt, abortsBefore: 0 }, async () => void order.push(step), never)
      await waiting
    }
    expect(order).toEqual(['prepared', 'verified', 'canWrite', 'committed'])
    await follower.team.step('prepared', { attempt, abortsBefore: 0 }, forbidden, never)
  })

  it('whose coordinator dies in a step is gone on with by its successor, in the same attempt', async () => {
    const [leader, follower, third] = await committing()
    const { attempt } = await pointOf(leader)
    leader.team
      .step('prepared', { attempt, abortsBefore: 0 }, () => new Promise<never>(() => {}), never)
      .catch(() => {})
    const done: string[] = []
    const taken = follower.team.step('prepared', { attempt, abortsBefore: 0 }, async () => void done.push('b'), never)
    const waiting = third.team.step('prepared', { attempt, abortsBefore: 0 }, async () => void done.push('c'), never)
    expect(await isPending(Promise.race([taken, waiting]))).toBe(true)
    leader.leads(false)
    follower.leads(true)
    await Promise.all([taken, waiting])
    expect(done).toEqual(['b'])
  })

  it('that fails, fails for all who wait, at whatever step of it they are', async () => {
    const [leader, follower, third] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('prepared', { attempt, abortsBefore: 0 }, async () => {}, never)
    const verdict = follower.team.step('verified', { attempt, abortsBefore: 0 }, forbidden, never)
    verdict.catch(() => {})
    await leader.team.failed(failure)
    await expect(verdict).rejects.toMatchObject({ failure: 'VerificationFailed', message: 'they differ' })
    // It was still on its way from the commit point when the coordinator failed.
    await expect(third.team.step('verified', { attempt, abortsBefore: 0 }, forbidden, never)).rejects.toThrow(
      FatalError,
    )
    expect(await third.team.joinable()).toBeNull()
  })

  it('that fails before an instance has heard of its commit point fails for that one as well', async () => {
    const [leader, follower] = await committing()
    await stages().set({ attempt: 0 })
    const late = follower.team.commitPoint(forbidden, 0, never)
    late.catch(() => {})
    expect(await isPending(late)).toBe(true)
    await stages().set({ attempt: 1, commitPoint: '7', step: 'point', failures: 1, failure })
    await expect(late).rejects.toMatchObject({ failure: 'VerificationFailed' })
    expect(leader.team.waitingFor).toEqual([])
  })

  it('is told to have failed by its coordinator alone, and once', async () => {
    const [leader, follower] = await committing()
    await leader.team.failed(failure)
    // Also before there is a commit point: the others wait for it.
    expect(await stages().load()).toMatchObject({ attempt: 0, failure, failures: 1 })
    await pointOf(leader)
    await follower.team.failed(failure)
    expect(await stages().load()).toMatchObject({ failure: null, failures: 1 })
    await leader.team.failed(failure)
    await leader.team.failed(failure)
    expect(await stages().load()).toMatchObject({ failure, failures: 2 })
  })

  it('attempted again has a new number and point, waited for by those whom the last one failed', async () => {
    const [leader, follower] = await committing()
    await pointOf(leader)
    await leader.team.failed(failure)
    const next = follower.team.commitPoint(forbidden, 0, never)
    expect(await isPending(next)).toBe(true)
    expect(await pointOf(leader, '9')).toEqual({ attempt: 2, point: '9' })
    expect(await next).toEqual({ attempt: 2, point: '9' })
    expect(await stages().load()).toMatchObject({ step: 'point', failure: null, failures: 1, heldBack: false })
    await expect(follower.team.step('prepared', { attempt: 1, abortsBefore: 0 }, forbidden, never)).rejects.toThrow(
      RenewedError,
    )
  })

  it('that its coordinator gives up is joined anew by those who wait in it, once it is held back', async () => {
    const [leader, follower, third] = await committing()
    const { attempt } = await pointOf(leader)
    const waiting = follower.team.step('verified', { attempt, abortsBefore: 0 }, forbidden, never)
    waiting.catch(() => {})
    const held = deferred<void>()
    // As a coordinator that was buried, or died and came back, does before it applies anything.
    const reopening = leader.team.reopen(
      true,
      undo(() => held.promise),
      never,
    )
    await expect(waiting).rejects.toThrow(RenewedError)
    const joining = third.team.reopen(true, undo(forbidden), never)
    expect(await isPending(joining)).toBe(true)
    held.resolve()
    await Promise.all([reopening, joining])
    expect(await stages().load()).toMatchObject({ abandoned: true, heldBack: true })
  })

  it('under way is left alone by a follower that comes back, and by anybody once writes are allowed', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await pointOf(leader)
    await follower.team.reopen(true, undo(forbidden), never)
    await leader.team.step('canWrite', { attempt, abortsBefore: 0 }, async () => {}, never)
    await leader.team.reopen(true, undo(forbidden), never)
    expect(await stages().load()).toMatchObject({ step: 'canWrite', abandoned: false })
  })

  it('is not begun anew by whoever leads and hears of it only once writes are allowed', async () => {
    const [leader] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('canWrite', { attempt, abortsBefore: 0 }, async () => {}, never)
    const late = member('late', true)
    await expect(late.team.commitPoint(forbidden, 0, never)).rejects.toThrow(PassedError)
    expect(await stages().load()).toMatchObject({ step: 'canWrite', attempt })
  })

  it('that was given up is not gone on with by a coordinator that was elected since', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('verified', { attempt, abortsBefore: 0 }, async () => {}, never)
    await leader.team.reopen(
      true,
      undo(async () => {}),
      never,
    )
    follower.leads(true)
    await expect(follower.team.step('canWrite', { attempt, abortsBefore: 0 }, forbidden, never)).rejects.toThrow(
      RenewedError,
    )
    expect(await stages().load()).toMatchObject({ step: 'verified', abandoned: true })
  })

  it('that fails after writes are allowed is gone on with by whoever is resumed', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('canWrite', { attempt, abortsBefore: 0 }, async () => {}, never)
    const waiting = follower.team.step('committed', { attempt, abortsBefore: 0 }, forbidden, never)
    waiting.catch(() => {})
    await sleep(100)
    await stages().set({ failures: 1, failure })
    await expect(waiting).rejects.toThrow(FatalError)
    const resumed = follower.team.step('committed', { attempt, abortsBefore: 0 }, forbidden, never)
    expect(await isPending(resumed)).toBe(true)
    await leader.team.step('committed', { attempt, abortsBefore: 0 }, async () => {}, never)
    await resumed
  })
})

describe('an abort', () => {
  const aborts = 0
  const point = (one: Member) => one.team.commitPoint(async () => '7', aborts, never)

  it('ends the commit for all who are at it, and the next attempt is begun only after it is undone', async () => {
    const [leader, follower, third] = await committing()
    const { attempt } = await point(leader)
    const waiting = follower.team.step('prepared', { attempt, abortsBefore: aborts }, forbidden, never)
    const watching = third.team.aborted(aborts, never)
    waiting.catch(() => {})
    // Any instance may store it.
    expect(await third.team.abort(aborts, { abortReason: 'too slow' })).toBe(true)
    await expect(waiting).rejects.toThrow(AbortedError)
    expect(await watching).toBe(true)
    await expect(point(follower)).rejects.toThrow(AbortedError)
    expect(await third.team.joinable()).toBeNull()

    const undone: string[] = []
    const undoing = {
      holdBack: async () => void undone.push('held back'),
      unblockSource: async () => void undone.push('source unblocked'),
    }
    // Also by an instance that had no part in the commit, and coordinates by now.
    const reopening = follower.team.reopen(false, { holdBack: forbidden, unblockSource: forbidden }, never)
    expect(await isPending(reopening)).toBe(true)
    await leader.team.reopen(false, undoing, never)
    await reopening
    expect(undone).toEqual(['source unblocked', 'held back'])
    expect(await stages().load()).toMatchObject({ aborts: 1, abortsUndone: 1, abortReason: 'too slow', request: null })
    // What an instance of the aborted commit was still at does not begin it again, and nobody joins it.
    await stages().begin({ attempt: 2, term: leader.term() }, 0, '8')
    expect(await stages().load()).toMatchObject({ attempt: 1, abandoned: true })
    expect(await third.team.joinable()).toBeNull()
    expect(await leader.team.commitPoint(async () => '9', 1, never)).toEqual({ attempt: 2, point: '9' })
  })

  it('that comes before the coordinator has stored its step keeps it from going on', async () => {
    const [leader] = await committing()
    const { attempt } = await point(leader)
    const at = { attempt, abortsBefore: aborts }
    await leader.team.step('verified', at, async () => {}, never)
    const deciding = leader.team.step(
      'decided',
      at,
      async () => {
        await leader.team.abort(aborts)
        return { writesHeld: false }
      },
      never,
    )
    await expect(deciding).rejects.toThrow(AbortedError)
    expect(await stages().load()).toMatchObject({ step: 'verified', aborts: 1 })
  })

  it('is too late once the commit is decided, and one abort counts once', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await point(leader)
    await leader.team.step('decided', { attempt, abortsBefore: aborts }, async () => ({ quietUntil: '8' }), never)
    for (const one of [leader, follower]) expect(await one.team.abort(aborts)).toBe(false)
    expect(await leader.team.aborted(aborts, never)).toBe(false)
    await stages().set({ step: 'point' })
    for (const one of [leader, follower]) expect(await one.team.abort(aborts)).toBe(true)
    expect(await stages().load()).toMatchObject({ aborts: 1 })
  })

  it('of a rehearsal, whichever instance was asked for it, is all that it can come to', async () => {
    const [leader] = await committing()
    await stages().set({ request: { dryRun: true, maxSeconds: null, at: 1 } })
    const { attempt } = await point(leader)
    await leader.team.step('verified', { attempt, abortsBefore: aborts }, async () => {}, never)
    await stages().advance({ attempt, term: leader.term() }, 'decided')
    expect(await stages().load()).toMatchObject({ step: 'verified' })
  })

  it('cannot be overtaken by a coordinator of an earlier term', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await point(leader)
    const at = { attempt, abortsBefore: aborts }
    await leader.team.step('verified', at, async () => {}, never)
    let decided = 0
    const stale = leader.team.step(
      'decided',
      at,
      async () => {
        decided += 1
        // Another instance is elected meanwhile, and works on the same step.
        follower.leads(true)
        await stages().takeOver({ attempt, term: follower.term() })
        leader.leads(false)
        return { quietUntil: 'stale' }
      },
      never,
    )
    expect(await isPending(stale)).toBe(true)
    expect(await stages().load()).toMatchObject({ step: 'verified', quietUntil: null })
    await follower.team.step('decided', at, async () => ({ quietUntil: 'new' }), never)
    await stale
    expect([decided, (await stages().load()).quietUntil]).toEqual([1, 'new'])
  })
})

describe('a request', () => {
  it('is the same for all who are at the commit; what nobody is at any more binds nobody', async () => {
    const [leader, follower, third] = await committing()
    for (const each of [follower, third]) await each.beat('RUNNING')
    const rehearsal = { dryRun: true, maxSeconds: null }
    await leader.team.request(rehearsal)
    await expect(follower.team.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    expect(await follower.team.request(rehearsal)).toBe(0)
    // Also while the one that was asked has not begun.
    await leader.beat('RUNNING')
    await expect(follower.team.request(plainCommit)).rejects.toMatchObject({ refusal: 'ConfigurationMismatch' })
    await stages().set({ request: { ...rehearsal, at: Date.now() - 10_001 } })
    expect(await follower.team.request(plainCommit)).toBe(0)
    expect(await stages().load()).toMatchObject({ request: plainCommit })
  })

  it('of an instance that is alone is replaced: what it had asked for before it died binds nobody', async () => {
    const only = member('a', true)
    await only.beat('RUNNING')
    await only.team.request({ dryRun: true, maxSeconds: 5 })
    expect(await only.team.request(plainCommit)).toBe(0)
    expect(await stages().load()).toMatchObject({ request: plainCommit })
  })
})
