import { type AnyMachineSnapshot, type AnyStateMachine, initialTransition, transition } from 'xstate'
import { pathOf } from '../../machines/sync-view.ts'

/** An event that a test sends. Events such as `xstate.done.actor.X` come from actors that a machine invokes. */
export interface Tried {
  type: string
  [field: string]: unknown
}

export interface Step<Snapshot extends AnyMachineSnapshot> {
  from: Snapshot
  event: Tried
  to: Snapshot
}

/** Returns the ids of the children that run. */
export function underWay(snapshot: { children: object }): string[] {
  return Object.entries(snapshot.children)
    .filter(([, child]) => child !== undefined)
    .map(([id]) => id)
}

/**
 * Returns every step that a machine can take. `events` returns the events that can happen in a state: an invoked actor
 * settles only while it runs, and a delay elapses only in its state. Reports of the machine to its parent are dropped.
 */
export function everyStep<Snapshot extends AnyMachineSnapshot>(
  machine: AnyStateMachine & { getInitialSnapshot: (...given: never[]) => Snapshot },
  events: (snapshot: Snapshot) => Tried[],
  input?: object,
): Step<Snapshot>[] {
  const reports = Object.keys(machine.implementations.actions).filter((name) => name.startsWith('report'))
  const alone = machine.provide({ actions: Object.fromEntries(reports.map((name) => [name, () => {}])) })
  const steps: Step<Snapshot>[] = []
  const known = new Set<string>()
  const open = [initialTransition(alone, input)[0] as unknown as Snapshot]
  for (let from = open.pop(); from; from = open.pop()) {
    const key = JSON.stringify([from.value, from.context, underWay(from).sort()])
    if (known.has(key)) continue
    known.add(key)
    for (const event of events(from)) {
      const to = transition(alone as never, from as never, event as never)[0] as unknown as Snapshot
      steps.push({ from, event, to })
      open.push(to)
    }
  }
  return steps
}

/**
 * Returns the events with which the running actors may settle: each actor with every output in `outputs`, or with an
 * error.
 */
export function settlements(snapshot: { children: object }, outputs: Record<string, unknown[]>, error: Error): Tried[] {
  return underWay(snapshot).flatMap((id) => {
    const settled = outputs[id]
    if (!settled) return []
    const done = settled.map((output) => ({ type: `xstate.done.actor.${id}`, output, actorId: id }))
    return [...done, { type: `xstate.error.actor.${id}`, error, actorId: id }]
  })
}

export const describeStep = ({ from, event, to }: Step<AnyMachineSnapshot>): string =>
  `${pathOf(from)} ─ ${event.type} ─▶ ${pathOf(to)}, context ${JSON.stringify(from.context)}`
