import { expect } from 'vitest'
import type { SyncCommand } from '../../machines/protocol.ts'
import {
  type AnyEvent,
  begin,
  commands,
  elapsed,
  type InstanceSnapshot,
  next,
  reports,
  running,
  settlements,
  stateOf,
  stored,
} from './instance-model.ts'

/** A transition of the instance machine, or a crash. */
export interface Step {
  from: InstanceSnapshot
  /** `null`: the process dies, and another process continues from the stored context. */
  event: AnyEvent | null
  to: InstanceSnapshot
}

const keyOf = (snapshot: InstanceSnapshot) => JSON.stringify([snapshot.value, snapshot.context])

/** Workers report only while they run, and promises settle only then. */
function mayHappen(snapshot: InstanceSnapshot, event: AnyEvent): boolean {
  if (event.type.startsWith('copy.')) return running(snapshot).includes('collectionCopy')
  if (event.type === 'sync.observed') {
    // The stored number of convergences never decreases.
    return running(snapshot).includes('syncFollower') && event.sync.convergences >= snapshot.context.convergences
  }
  if (event.type === 'events.drained') return running(snapshot).includes('eventApplication')
  if (event.type === 'events.reached') return stateOf(snapshot).endsWith('committing')
  if (event.type.startsWith('xstate.after.')) return event.type.endsWith(`.${stateOf(snapshot)}`)
  const [, id] = /^xstate\.\w+\.actor\.(\w+)$/.exec(event.type) ?? []
  return id === undefined || running(snapshot).includes(id)
}

/**
 * Returns the state after the event. A command or a report that no transition matches changes nothing, and `can` finds
 * that out much faster than a transition does. An error of a child that no transition matches ends the machine.
 */
function after(from: InstanceSnapshot, event: AnyEvent): InstanceSnapshot {
  const isOfChild = event.type.startsWith('xstate.')
  return isOfChild || from.can(event as SyncCommand) ? next(from, event) : from
}

/**
 * Returns whether the event starts a sync without verification. Its only difference is that the machine skips
 * `hashing`.
 */
const isUnverified = (event: AnyEvent) => event.type === 'sync.start' && !event.configuration.verification.enabled
const tried = [...commands, ...reports, ...settlements, ...elapsed].filter((event) => !isUnverified(event))

/**
 * Finds all states and steps, crashes included. The machine has few enough states to try every event in each of them.
 * Steps that lead to the same state share its snapshot.
 */
function explore(): { states: InstanceSnapshot[]; steps: Step[] } {
  const steps: Step[] = []
  const known = new Map<string, InstanceSnapshot>()
  const open: InstanceSnapshot[] = []
  const reach = (snapshot: InstanceSnapshot): InstanceSnapshot => {
    const key = keyOf(snapshot)
    const same = known.get(key)
    if (same) return same
    known.set(key, snapshot)
    open.push(snapshot)
    return snapshot
  }
  reach(begin())
  for (let from = open.pop(); from; from = open.pop()) {
    const current = from
    const events = tried.filter((event) => mayHappen(current, event))
    for (const event of [...events, null]) {
      const to = event ? after(from, event) : begin(stored(from))
      steps.push({ from, event, to: to === from ? from : reach(to) })
    }
  }
  return { states: [...known.values()], steps }
}

/** The exploration takes seconds, so only one test file imports this module. */
export const { states, steps } = explore()

/** True if the instance learns of another convergence in this step. */
export const isConvergence = ({ from, to }: Step): boolean => to.context.convergences > from.context.convergences
export const describeStep = ({ from, event, to }: Step) =>
  `${stateOf(from)} ─ ${event?.type ?? 'crash'} ─▶ ${stateOf(to)}, context ${JSON.stringify(from.context)}`

export function everyStepShould(hold: (step: Step) => boolean): void {
  expect(steps.filter((step) => !hold(step)).map(describeStep)).toEqual([])
}

/** Checks each state once, which is faster than `everyStepShould`. Describes one step to each wrong state. */
export function everyStateShould(hold: (state: InstanceSnapshot) => boolean): void {
  const wrong = states.filter((state) => !hold(state))
  expect(wrong.map((state) => describeStep(steps.find(({ to }) => to === state) as Step))).toEqual([])
}
