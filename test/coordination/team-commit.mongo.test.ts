import { setTimeout as sleep } from 'node:timers/promises'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { PassedError, RenewedError } from '../../src/coordination/team.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { FatalError } from '../../src/domain/errors.ts'
import { oneSet } from '../mongo/one-set.ts'
import * as members from './team-members.ts'
import { forbidden, isPending, type Member, never } from './team-members.ts'

/** The steps of a commit, attempts that fail, are given up and begun anew. */

const one = oneSet()
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
})
const stages = () => members.stages(one)
const member = (id: string, leading = false) => members.member(one, id, leading)

/** A coordinator and two others, all of whom have got the commit. */
async function committing(): Promise<[Member, Member, Member]> {
  const all: [Member, Member, Member] = [member('a', true), member('b'), member('c')]
  for (const each of all) await each.beat('COMMITTING')
  return all
}

const pointOf = (one: Member, point = '7') => one.team.commitPoint(async () => point, never)
const failure = { error: 'VerificationFailed' as const, errorDescription: 'they differ' }

describe('a commit', () => {
  it('begins when every living instance has got it; the one that has not is named', async () => {
    const [leader, follower, third] = await committing()
    await third.beat('RUNNING')
    const points = [pointOf(leader), follower.team.commitPoint(forbidden, never)]
    expect(await isPending(Promise.race(points))).toBe(true)
    expect([leader.team.waitingFor, follower.team.waitingFor]).toEqual([['c'], ['c']])
    await third.beat('COMMITTING')
    points.push(third.team.commitPoint(forbidden, never))
    expect(await Promise.all(points)).toEqual(new Array(3).fill({ attempt: 1, point: '7' }))
    expect([leader.team.waitingFor, follower.team.waitingFor]).toEqual([[], []])
    expect(await third.team.isCommitting()).toBe(true)
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
    await leader.team.step('verified', attempt, async () => {}, never)
    await third.team.insistOnOpen()
    await leader.team.step('canWrite', attempt, async () => {}, never)
    await expect(third.team.insistOnOpen()).rejects.toThrow(PassedError)
  })

  it('waits, and does not fail, while nobody can be heard of', async () => {
    const [leader, follower] = await committing()
    const answers = vi.spyOn(MongoLiveness.prototype, 'instances').mockRejectedValue(new Error('no primary'))
    const points = [pointOf(leader), follower.team.commitPoint(forbidden, never)]
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
      const waiting = follower.team.step(step, attempt, forbidden, never)
      await leader.team.step(step, attempt, async () => void order.push(step), never)
      await waiting
    }
    expect(order).toEqual(['prepared', 'verified', 'canWrite', 'committed'])
    await follower.team.step('prepared', attempt, forbidden, never)
  })

  it('whose coordinator dies in a step is gone on with by its successor, in the same attempt', async () => {
    const [leader, follower, third] = await committing()
    const { attempt } = await pointOf(leader)
    leader.team.step('prepared', attempt, () => new Promise<never>(() => {}), never).catch(() => {})
    const done: string[] = []
    const taken = follower.team.step('prepared', attempt, async () => void done.push('b'), never)
    const waiting = third.team.step('prepared', attempt, async () => void done.push('c'), never)
    expect(await isPending(Promise.race([taken, waiting]))).toBe(true)
    leader.leads(false)
    follower.leads(true)
    await Promise.all([taken, waiting])
    expect(done).toEqual(['b'])
  })

  it('that fails, fails for all who wait, at whatever step of it they are', async () => {
    const [leader, follower, third] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('prepared', attempt, async () => {}, never)
    const verdict = follower.team.step('verified', attempt, forbidden, never)
    verdict.catch(() => {})
    await leader.team.failed(failure)
    await expect(verdict).rejects.toMatchObject({ failure: 'VerificationFailed', message: 'they differ' })
    // It was still on its way from the commit point when the coordinator failed.
    await expect(third.team.step('verified', attempt, forbidden, never)).rejects.toThrow(FatalError)
    expect(await third.team.isCommitting()).toBe(false)
  })

  it('that fails before an instance has heard of its commit point fails for that one as well', async () => {
    const [leader, follower] = await committing()
    await stages().set({ attempt: 0 })
    const late = follower.team.commitPoint(forbidden, never)
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
    const next = follower.team.commitPoint(forbidden, never)
    expect(await isPending(next)).toBe(true)
    expect(await pointOf(leader, '9')).toEqual({ attempt: 2, point: '9' })
    expect(await next).toEqual({ attempt: 2, point: '9' })
    expect(await stages().load()).toMatchObject({ step: 'point', failure: null, failures: 1, heldBack: false })
    await expect(follower.team.step('prepared', 1, forbidden, never)).rejects.toThrow(RenewedError)
  })

  it('that its coordinator gives up is joined anew by those who wait in it, once it is held back', async () => {
    const [leader, follower, third] = await committing()
    const { attempt } = await pointOf(leader)
    const waiting = follower.team.step('verified', attempt, forbidden, never)
    waiting.catch(() => {})
    const held = deferred<void>()
    // As a coordinator that was buried, or died and came back, does before it applies anything.
    const reopening = leader.team.reopen(() => held.promise, never)
    await expect(waiting).rejects.toThrow(RenewedError)
    const joining = third.team.reopen(forbidden, never)
    expect(await isPending(joining)).toBe(true)
    held.resolve()
    await Promise.all([reopening, joining])
    expect(await stages().load()).toMatchObject({ abandoned: true, heldBack: true })
  })

  it('under way is left alone by a follower that comes back, and by anybody once writes are allowed', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await pointOf(leader)
    await follower.team.reopen(forbidden, never)
    await leader.team.step('canWrite', attempt, async () => {}, never)
    await leader.team.reopen(forbidden, never)
    expect(await stages().load()).toMatchObject({ step: 'canWrite', abandoned: false })
  })

  it('is not begun anew by whoever leads and hears of it only once writes are allowed', async () => {
    const [leader] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('canWrite', attempt, async () => {}, never)
    const late = member('late', true)
    await expect(late.team.commitPoint(forbidden, never)).rejects.toThrow(PassedError)
    expect(await stages().load()).toMatchObject({ step: 'canWrite', attempt })
  })

  it('that was given up is not gone on with by a coordinator that was elected since', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('verified', attempt, async () => {}, never)
    await leader.team.reopen(async () => {}, never)
    follower.leads(true)
    await expect(follower.team.step('canWrite', attempt, forbidden, never)).rejects.toThrow(RenewedError)
    expect(await stages().load()).toMatchObject({ step: 'verified', abandoned: true })
  })

  it('that fails after writes are allowed is gone on with by whoever is resumed', async () => {
    const [leader, follower] = await committing()
    const { attempt } = await pointOf(leader)
    await leader.team.step('canWrite', attempt, async () => {}, never)
    const waiting = follower.team.step('committed', attempt, forbidden, never)
    waiting.catch(() => {})
    await sleep(100)
    await stages().set({ failures: 1, failure })
    await expect(waiting).rejects.toThrow(FatalError)
    const resumed = follower.team.step('committed', attempt, forbidden, never)
    expect(await isPending(resumed)).toBe(true)
    await leader.team.step('committed', attempt, async () => {}, never)
    await resumed
  })
})
