import { beforeEach, describe, expect, it } from 'vitest'
import { deferred } from '../../src/domain/deferred.ts'
import { StoppedError } from '../../src/domain/errors.ts'
import { oneSet } from '../mongo/one-set.ts'
import * as members from './team-members.ts'
import { forbidden, isPending, never } from './team-members.ts'

/** The steps of a sync that are done once for all. */

const one = oneSet()
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
})
const stages = () => members.stages(one)
const member = (id: string, leading = false) => members.member(one, id, leading)

describe('a step that is done once for all', () => {
  it('is done by the coordinator while the others wait for it, and never again', async () => {
    const [leader, follower] = [member('a', true), member('b')]
    const work = deferred<void>()
    let times = 0
    const led = leader.team.initialised(async () => {
      times += 1
      await work.promise
    }, never)
    const waiting = follower.team.initialised(forbidden, never)
    expect(await isPending(waiting)).toBe(true)
    work.resolve()
    await Promise.all([led, waiting])
    await leader.team.initialised(forbidden, never)
    await member('late').team.initialised(forbidden, never)
    expect(times).toBe(1)
    expect((await stages().load()).adapted).toBe(false)
  })

  it('whose coordinator dies half-way is done by its successor from the beginning', async () => {
    const [leader, follower] = [member('a', true), member('b')]
    leader.team.initialised(() => new Promise<never>(() => {}), never).catch(() => {})
    let done = 0
    const taken = follower.team.initialised(async () => {
      done += 1
    }, never)
    expect(await isPending(taken)).toBe(true)
    leader.leads(false)
    follower.leads(true)
    await taken
    expect(done).toBe(1)
  })

  it('that fails is not done, and is tried anew', async () => {
    const leader = member('a', true)
    await expect(leader.team.adapted(forbidden, never)).rejects.toThrow('only the coordinator')
    expect((await stages().load()).adapted).toBe(false)
    await leader.team.adapted(async () => {}, never)
    expect((await stages().load()).adapted).toBe(true)
  })

  it('is not waited for by an instance that is told to stop', async () => {
    const stop = new AbortController()
    const waiting = member('b').team.initialised(forbidden, stop.signal)
    stop.abort()
    await expect(waiting).rejects.toThrow(StoppedError)
  })
})
