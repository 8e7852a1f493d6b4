import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Actor, createActor, fromPromise } from 'xstate'
import { getShortestPaths } from 'xstate/graph'
import { type CampaignInput, electionMachine } from '../../machines/election.ts'
import type { ElectionEvent } from '../../machines/protocol.ts'
import { settle } from './stub-workers.ts'

/**
 * A model of instances, their leases and the coordinator role in the metadata database. A step is a read by one
 * instance, the end of its campaign (won or not, with the reply delivered or lost), its eviction, a pause or a release
 * of the role. In any order of steps, the role has at most one owner in each epoch.
 */
interface Role {
  owner: string | null
  epoch: number
}

class Candidate {
  readonly id: string
  readonly actor: Actor<typeof electionMachine>
  leaseEpoch = 1
  eligible = true
  #finish: ((reply: 'delivered' | 'lost') => void) | null = null

  constructor(id: string, role: Role, expired: Set<string>, won: (owner: string, epoch: number) => void) {
    this.id = id
    const campaign = fromPromise<boolean, CampaignInput>(
      ({ signal }) =>
        new Promise((resolve, reject) => {
          const observed = { ...role }
          this.#finish = (reply) => {
            this.#finish = null
            // The compare-and-set takes effect whether or not the reply is delivered.
            const free = role.owner === null || expired.has(role.owner)
            const mayWrite = !expired.has(this.token)
            const taken = mayWrite && free && role.epoch === observed.epoch && role.owner === observed.owner
            if (taken) {
              role.owner = this.token
              role.epoch += 1
              won(this.token, role.epoch)
            }
            if (signal.aborted || reply === 'lost') reject(new Error('no answer'))
            else resolve(taken)
          }
        }),
    )
    this.actor = createActor(electionMachine.provide({ actors: { campaign } }), { input: { self: id } })
    this.actor.start()
  }

  get token(): string {
    return `${this.id}#${this.leaseEpoch}`
  }

  get isCampaigning(): boolean {
    return this.#finish !== null
  }

  finish(reply: 'delivered' | 'lost'): void {
    this.#finish?.(reply)
  }

  read(role: Role, expired: Set<string>): void {
    const vacant = role.owner === null || expired.has(role.owner)
    this.actor.send({
      type: 'coordinator.observed',
      holder: role.owner?.split('#')[0] ?? null,
      mine: role.owner === this.token,
      vacant,
      eligible: this.eligible,
    })
  }

  get value(): string {
    return this.actor.getSnapshot().value
  }

  get holder(): string | null {
    return this.actor.getSnapshot().context.holder
  }
}

type Step =
  | { do: 'read' | 'evict' | 'pause' | 'resign'; who: number }
  | { do: 'finish'; who: number; reply: 'delivered' | 'lost' }

const steps = (count: number): fc.Arbitrary<Step[]> => {
  const who = fc.nat({ max: count - 1 })
  return fc.array(
    fc.oneof(
      { weight: 6, arbitrary: who.map((who): Step => ({ do: 'read', who })) },
      {
        weight: 6,
        arbitrary: fc
          .tuple(who, fc.constantFrom('delivered', 'delivered', 'lost'))
          .map(([who, reply]): Step => ({ do: 'finish', who, reply: reply as 'delivered' | 'lost' })),
      },
      { weight: 2, arbitrary: who.map((who): Step => ({ do: 'evict', who })) },
      { weight: 1, arbitrary: who.map((who): Step => ({ do: 'pause', who })) },
      { weight: 1, arbitrary: who.map((who): Step => ({ do: 'resign', who })) },
    ),
    { maxLength: 60 },
  )
}

async function play(count: number, sequence: Step[]): Promise<void> {
  const role: Role = { owner: null, epoch: 0 }
  const expired = new Set<string>()
  const owners = new Map<number, string>()
  const candidates = Array.from(
    { length: count },
    (_, index) =>
      new Candidate(`i${index}`, role, expired, (owner, epoch) => {
        expect(owners.has(epoch)).toBe(false)
        owners.set(epoch, owner)
      }),
  )
  for (const candidate of candidates) expect(candidate.holder).toBeNull()
  for (const step of sequence) {
    const candidate = candidates[step.who] as Candidate
    if (step.do === 'read') candidate.read(role, expired)
    else if (step.do === 'finish') candidate.finish(step.reply)
    else if (step.do === 'pause') candidate.eligible = !candidate.eligible
    else if (step.do === 'resign') {
      if (role.owner === candidate.token) role.owner = null
    } else {
      // The lease of the candidate expired and another instance evicted it. It returns in a new lease term.
      expired.add(candidate.token)
      candidate.leaseEpoch += 1
      candidate.actor.send({ type: 'lease.lost' })
    }
    await settle()
    if (step.do === 'read' && !candidate.isCampaigning) {
      const mine = role.owner === candidate.token
      expect(candidate.value === 'leading').toBe(mine)
      if (mine) expect(candidate.holder).toBe(candidate.id)
      else if (role.owner !== null && !expired.has(role.owner)) {
        expect(candidate.holder).toBe(role.owner.split('#')[0])
      }
    }
    // A candidate that leads has won the role. It may have lost the role since without having read that.
    for (const one of candidates) {
      if (one.value === 'leading') expect([...owners.values()]).toContain(one.token)
    }
  }
  // Without further faults, exactly one candidate leads.
  for (let round = 0; round < 4; round++) {
    for (const candidate of candidates) {
      candidate.eligible = true
      candidate.finish('delivered')
      await settle()
      candidate.read(role, expired)
      await settle()
    }
  }
  for (const candidate of candidates) {
    candidate.finish('delivered')
    await settle()
    candidate.read(role, expired)
    await settle()
  }
  expect(candidates.filter(({ value }) => value === 'leading')).toHaveLength(1)
  expect(new Set(candidates.map(({ holder }) => holder)).size).toBe(1)
  for (const { actor } of candidates) actor.stop()
}

describe('election', () => {
  it('has a path to every state', () => {
    const others = { type: 'coordinator.observed' as const, holder: 'b', mine: false, vacant: false, eligible: true }
    const events: ElectionEvent[] = [
      others,
      { ...others, holder: 'a', mine: true },
      { ...others, holder: null, vacant: true },
      { ...others, holder: null, vacant: true, eligible: false },
      { type: 'lease.lost' },
    ]
    const paths = getShortestPaths(electionMachine, { events, input: { self: 'a' } })
    const reached = new Set(paths.map(({ state }) => state.value))
    expect([...reached].sort()).toEqual(['campaigning', 'following', 'leading', 'unknown'])
  })

  it('gives the role at most one owner in each epoch in any order of events, and one leader when no more faults occur', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }).chain((count) => fc.tuple(fc.constant(count), steps(count))),
        ([count, sequence]) => play(count, sequence),
      ),
      { numRuns: 150 },
    )
  })

  it('makes a single instance the coordinator, and knows no coordinator before that', async () => {
    const role: Role = { owner: null, epoch: 0 }
    const alone = new Candidate('only', role, new Set(), () => {})
    expect(alone.holder).toBeNull()
    alone.read(role, new Set())
    await settle()
    expect([alone.value, alone.holder]).toEqual(['campaigning', null])
    alone.finish('delivered')
    await settle()
    expect([alone.value, alone.holder]).toEqual(['leading', 'only'])
    alone.actor.stop()
  })

  it('does not let a paused instance campaign', async () => {
    const role: Role = { owner: null, epoch: 0 }
    const paused = new Candidate('paused', role, new Set(), () => {})
    paused.eligible = false
    paused.read(role, new Set())
    await settle()
    expect([paused.value, paused.isCampaigning]).toEqual(['unknown', false])
    paused.actor.stop()
  })
})
