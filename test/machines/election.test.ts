import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Actor, createActor, fromPromise } from 'xstate'
import { getShortestPaths } from 'xstate/graph'
import { type CampaignInput, electionMachine } from '../../machines/election.ts'
import type { ElectionEvent } from '../../machines/protocol.ts'
import { settle } from './stub-workers.ts'

/**
 * Instances, the office in the metadata database and their leases, as a model: a step is one instance's look, the end of
 * its campaign (won or not, told or lost), its death and burial. Whatever the order, the office has one owner in an epoch.
 */
interface Office {
  owner: string | null
  epoch: number
}

class Candidate {
  readonly id: string
  readonly actor: Actor<typeof electionMachine>
  life = 1
  eligible = true
  #finish: ((answer: 'told' | 'lost') => void) | null = null

  constructor(id: string, office: Office, dead: Set<string>, won: (owner: string, epoch: number) => void) {
    this.id = id
    const campaign = fromPromise<boolean, CampaignInput>(
      ({ signal }) =>
        new Promise((resolve, reject) => {
          const seen = { ...office }
          this.#finish = (answer) => {
            this.#finish = null
            // The compare-and-set takes place whether or not anybody hears of it.
            const free = office.owner === null || dead.has(office.owner)
            const mayWrite = !dead.has(this.token)
            const taken = mayWrite && free && office.epoch === seen.epoch && office.owner === seen.owner
            if (taken) {
              office.owner = this.token
              office.epoch += 1
              won(this.token, office.epoch)
            }
            if (signal.aborted || answer === 'lost') reject(new Error('no answer'))
            else resolve(taken)
          }
        }),
    )
    this.actor = createActor(electionMachine.provide({ actors: { campaign } }), { input: { self: id } })
    this.actor.start()
  }

  get token(): string {
    return `${this.id}#${this.life}`
  }

  get isCampaigning(): boolean {
    return this.#finish !== null
  }

  finish(answer: 'told' | 'lost'): void {
    this.#finish?.(answer)
  }

  look(office: Office, dead: Set<string>): void {
    const vacant = office.owner === null || dead.has(office.owner)
    this.actor.send({
      type: 'office.seen',
      holder: office.owner?.split('#')[0] ?? null,
      mine: office.owner === this.token,
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
  | { do: 'look' | 'bury' | 'pause' | 'resign'; who: number }
  | { do: 'finish'; who: number; answer: 'told' | 'lost' }

const steps = (count: number): fc.Arbitrary<Step[]> => {
  const who = fc.nat({ max: count - 1 })
  return fc.array(
    fc.oneof(
      { weight: 6, arbitrary: who.map((who): Step => ({ do: 'look', who })) },
      {
        weight: 6,
        arbitrary: fc
          .tuple(who, fc.constantFrom('told', 'told', 'lost'))
          .map(([who, answer]): Step => ({ do: 'finish', who, answer: answer as 'told' | 'lost' })),
      },
      { weight: 2, arbitrary: who.map((who): Step => ({ do: 'bury', who })) },
      { weight: 1, arbitrary: who.map((who): Step => ({ do: 'pause', who })) },
      { weight: 1, arbitrary: who.map((who): Step => ({ do: 'resign', who })) },
    ),
    { maxLength: 60 },
  )
}

async function play(count: number, sequence: Step[]): Promise<void> {
  const office: Office = { owner: null, epoch: 0 }
  const dead = new Set<string>()
  const owners = new Map<number, string>()
  const candidates = Array.from(
    { length: count },
    (_, index) =>
      new Candidate(`i${index}`, office, dead, (owner, epoch) => {
        expect(owners.has(epoch)).toBe(false)
        owners.set(epoch, owner)
      }),
  )
  for (const candidate of candidates) expect(candidate.holder).toBeNull()
  for (const step of sequence) {
    const candidate = candidates[step.who] as Candidate
    if (step.do === 'look') candidate.look(office, dead)
    else if (step.do === 'finish') candidate.finish(step.answer)
    else if (step.do === 'pause') candidate.eligible = !candidate.eligible
    else if (step.do === 'resign') {
      if (office.owner === candidate.token) office.owner = null
    } else {
      // Its lease expired and the others buried it; it comes back in another life.
      dead.add(candidate.token)
      candidate.life += 1
      candidate.actor.send({ type: 'lease.lost' })
    }
    await settle()
    if (step.do === 'look' && !candidate.isCampaigning) {
      const mine = office.owner === candidate.token
      expect(candidate.value === 'leading').toBe(mine)
      if (mine) expect(candidate.holder).toBe(candidate.id)
      else if (office.owner !== null && !dead.has(office.owner)) {
        expect(candidate.holder).toBe(office.owner.split('#')[0])
      }
    }
    // Whoever leads has won the office itself, whether or not it has lost it since without having looked.
    for (const one of candidates) {
      if (one.value === 'leading') expect([...owners.values()]).toContain(one.token)
    }
  }
  // Left alone, somebody comes to lead, and only one.
  for (let round = 0; round < 4; round++) {
    for (const candidate of candidates) {
      candidate.eligible = true
      candidate.finish('told')
      await settle()
      candidate.look(office, dead)
      await settle()
    }
  }
  for (const candidate of candidates) {
    candidate.finish('told')
    await settle()
    candidate.look(office, dead)
    await settle()
  }
  expect(candidates.filter(({ value }) => value === 'leading')).toHaveLength(1)
  expect(new Set(candidates.map(({ holder }) => holder)).size).toBe(1)
  for (const { actor } of candidates) actor.stop()
}

describe('election', () => {
  it('has a path to every state', () => {
    const seen = { type: 'office.seen' as const, holder: 'b', mine: false, vacant: false, eligible: true }
    const events: ElectionEvent[] = [
      seen,
      { ...seen, holder: 'a', mine: true },
      { ...seen, holder: null, vacant: true },
      { ...seen, holder: null, vacant: true, eligible: false },
      { type: 'lease.lost' },
    ]
    const paths = getShortestPaths(electionMachine, { events, input: { self: 'a' } })
    const reached = new Set(paths.map(({ state }) => state.value))
    expect([...reached].sort()).toEqual(['campaigning', 'following', 'leading', 'unknown'])
  })

  it('gives the office one owner in an epoch, and a leader when it is left alone, whatever the order of events', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.integer({ min: 1, max: 4 }).chain((count) => fc.tuple(fc.constant(count), steps(count))),
        ([count, sequence]) => play(count, sequence),
      ),
      { numRuns: 150 },
    )
  })

  it('of an instance that is alone makes it its own coordinator, which nobody is before', async () => {
    const office: Office = { owner: null, epoch: 0 }
    const alone = new Candidate('only', office, new Set(), () => {})
    expect(alone.holder).toBeNull()
    alone.look(office, new Set())
    await settle()
    expect([alone.value, alone.holder]).toEqual(['campaigning', null])
    alone.finish('told')
    await settle()
    expect([alone.value, alone.holder]).toEqual(['leading', 'only'])
    alone.actor.stop()
  })

  it('is not stood for by an instance that is paused', async () => {
    const office: Office = { owner: null, epoch: 0 }
    const paused = new Candidate('paused', office, new Set(), () => {})
    paused.eligible = false
    paused.look(office, new Set())
    await settle()
    expect([paused.value, paused.isCampaigning]).toEqual(['unknown', false])
    paused.actor.stop()
  })
})
