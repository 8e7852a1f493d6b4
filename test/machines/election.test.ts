import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { createActor, fromCallback, fromPromise, initialTransition, type SnapshotFrom, transition } from 'xstate'
import { getShortestPaths } from 'xstate/graph'
import { electionMachine } from '../../machines/election.ts'
import type { LeaseEvent } from '../../machines/protocol.ts'
import { settle } from './stub-workers.ts'

type Snapshot = SnapshotFrom<typeof electionMachine>
type Event = LeaseEvent | { type: `xstate.${'done' | 'error'}.actor.campaign`; output?: unknown; error?: unknown }

const events: Event[] = [
  { type: 'lease.campaign' },
  { type: 'lease.resign' },
  { type: 'lease.lost', holder: null },
  { type: 'xstate.done.actor.campaign', output: undefined },
  { type: 'xstate.error.actor.campaign', error: new Error('no') },
]

const next = (snapshot: Snapshot, event: Event): Snapshot =>
  transition(electionMachine, snapshot, event as LeaseEvent)[0]
const childrenOf = (snapshot: Snapshot) =>
  Object.entries(snapshot.children).flatMap(([id, child]) => (child === undefined ? [] : [id]))

describe('election', () => {
  it('has a path to every state', () => {
    const paths = getShortestPaths(electionMachine, { events: events as never[] })
    const reached = new Set(paths.map(({ state }) => state.value))
    expect([...reached].sort()).toEqual(['campaigning', 'leading', 'resigned'])
  })

  it('leads only by a campaign that succeeded, and not a moment after the lease is lost or given back', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(...events), { maxLength: 30 }), (sequence) => {
        let snapshot = initialTransition(electionMachine)[0]
        expect(snapshot.value).toBe('resigned')
        for (const event of sequence) {
          // A campaign settles only while it runs.
          if (event.type.endsWith('.campaign') && event.type.startsWith('xstate') && !snapshot.children.campaign)
            continue
          const before = snapshot
          snapshot = next(before, event)
          if (snapshot.matches('leading') && !before.matches('leading')) {
            expect([before.value, event.type]).toEqual(['campaigning', 'xstate.done.actor.campaign'])
          }
          if (event.type === 'lease.lost' || event.type === 'lease.resign')
            expect(snapshot.matches('leading')).toBe(false)
          const runs = { resigned: [], campaigning: ['campaign'], leading: ['tenure'] }
          expect(childrenOf(snapshot)).toEqual(runs[snapshot.value])
        }
      }),
    )
  })

  it('of two, only the one that holds the lease leads', async () => {
    // One lease: whoever asks gets it when nobody has it.
    let free: (() => void)[] = []
    let held = false
    const take = async (): Promise<void> => {
      while (held) await new Promise<void>((resolve) => free.push(resolve))
      held = true
    }
    const giveUp = (): void => {
      held = false
      const waiting = free
      free = []
      for (const resolve of waiting) resolve()
    }
    const contender = () =>
      createActor(
        electionMachine.provide({
          actors: { campaign: fromPromise(take), tenure: fromCallback(() => giveUp) },
        }),
      ).start()
    const both = [contender(), contender()] as const
    const command = fc.record({
      to: fc.constantFrom(0 as const, 1 as const),
      event: fc.constantFrom<LeaseEvent>({ type: 'lease.campaign' }, { type: 'lease.lost', holder: 'x' }),
    })
    await fc.assert(
      fc.asyncProperty(fc.array(command, { maxLength: 10 }), async (sequence) => {
        for (const { to, event } of sequence) {
          both[to].send(event)
          await settle()
          expect(both.filter((actor) => actor.getSnapshot().matches('leading')).length).toBeLessThanOrEqual(1)
        }
      }),
      { numRuns: 50 },
    )
    for (const actor of both) actor.stop()
  })
})
