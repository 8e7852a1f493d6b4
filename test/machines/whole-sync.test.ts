import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { canBeAborted } from '../../machines/sync-view.ts'
import { publicState } from '../../src/session/report-progress.ts'
import {
  type Action,
  act,
  complete,
  memberActions,
  reversedWhole,
  stateOfSync,
  type Whole,
  wholeOf,
} from './whole-sync.ts'

const closed = ['committing.preparing', 'committing.verifying', 'committing.deciding']

/** Each instance can abort a commit that is not decided, whichever instances have received the commit. */
function expectAbortable(whole: Whole): void {
  if (!canBeAborted(whole.sync)) return
  whole.members.forEach(({ snapshot: { context } }, member) => {
    // This instance takes part in an earlier commit, whose end it has not observed yet. It aborts only that commit.
    if (context.commitRequested && context.abortsBefore < whole.sync.context.aborts) return
    const after = act(whole, { member, does: 'abort' })
    expect([stateOfSync(after), after.sync.context.aborts]).toEqual(['undoing', whole.sync.context.aborts + 1])
  })
}

/** Checks the invariants of every action. */
function check(before: Whole, { does, member }: Action, after: Whole): void {
  const state = stateOfSync(after)
  const describe = () => `${stateOfSync(before)} ─ ${does} by ${member} ─▶ ${state}`
  const { decided } = { decided: after.sync.hasTag('decided') }
  if (before.sync.hasTag('decided')) expect(decided, describe()).toBe(true)
  // No changes are applied while the destination is compared with the source, and from the decision on.
  if (closed.includes(state) || decided) {
    expect(after.members.map(({ holds }) => holds).includes(true), describe()).toBe(false)
  }
  if (!before.sync.hasTag('decided') && decided) {
    expect([stateOfSync(before), does, before.leader], describe()).toEqual(['committing.deciding', 'step', member])
    expect(before.sync.context.request?.dryRun, describe()).toBe(false)
  }
  // No instance copies or applies under a replaced plan, and none does while the coordinator replaces the plan.
  if (after.sync.hasTag('applicable')) {
    const plans = after.members.filter(({ open }) => open).map(({ plan }) => plan)
    expect(
      plans.every((plan) => plan === after.sync.context.convergences),
      describe(),
    ).toBe(true)
  }
  if (stateOfSync(before) === 'replanning' && state === 'replicating') {
    expect(before.members.map(({ open, holds }) => open || holds).includes(true), describe()).toBe(false)
  }
  // If no oplog contains all changes since the commit, the collections are converged before changes are followed.
  if (stateOfSync(before) === 'reversing.preparingDestination' && state !== 'reversing.preparingDestination') {
    expect(state, describe()).toBe(before.lost ? 'replanning' : 'replicating')
  }
  // A commit begins only when everything is converged.
  if (stateOfSync(before) === 'committing.gathering' && state === 'committing.takingTimestamp') {
    expect(after.copied, describe()).toBe(after.sync.context.convergences)
  }
  // A report of an earlier term changes nothing.
  if (does === 'staleReport') expect(after.sync, describe()).toBe(before.sync)
  // A verdict is valid only in its coordinator's term.
  if (after.sync.context.term > before.sync.context.term) expect(state, describe()).not.toBe('committing.deciding')
  for (const { snapshot } of after.members) {
    const { canWrite } = snapshot.context
    if (snapshot.matches('committed')) expect(state, describe()).toBe('committed')
    if (canWrite) expect(after.sync.hasTag('canWrite'), describe()).toBe(true)
    if (publicState(snapshot) === 'RUNNING' && snapshot.hasTag('canCommit')) expect(canWrite).toBe(false)
  }
}

/** Replaces counters, which are unbounded, by their order, because only the order makes a difference. */
const keyOf = ({ sync, members, leader, copied }: Whole): string => {
  const {
    term,
    attempt,
    aborts,
    failures,
    request,
    commitTimestamp: _point,
    quietUntil: _until,
    ...others
  } = sync.context
  const { convergences, startTime: _time, scope: _scope, ...unfiltered } = others
  const { filters: _filters, filterChange: _change, ...context } = unfiltered
  const known = members.map(({ snapshot, open, holds, ...member }) => {
    const { attempt: own, abortsBefore, sync: view, commitTimestamp: _own, limits: _limits, ...rest } = snapshot.context
    const { copyDrained: _copy, eventsDrained: _events, configuration: _configuration, ...flags } = rest
    const { convergences: converged, ...shown } = flags
    const observed = view && [
      view.state,
      ...[view.attempt - attempt, view.aborts - aborts, view.convergences - convergences].map(Math.sign),
    ]
    const plans = [converged, open ? member.plan : convergences, member.stoppedFor].map((one) => one - convergences)
    const counts = [own && Math.sign(own - attempt), abortsBefore - aborts, member.term - term, ...plans].map(Math.sign)
    return [snapshot.value, shown, counts, open, holds, observed, member.failures && member.failures - failures]
  })
  return JSON.stringify([sync.value, { ...context, asked: request?.dryRun }, known, leader, copied === convergences])
}

/**
 * The actions that the exhaustive search of one instance tries. Only the random sequences try the others: a pause,
 * actions with the same effect on one instance as a failure or a crash, and actions that only matter with other
 * instances.
 */
const tried = memberActions.filter(
  (does) => !['pause', 'drained', 'failWorker', 'evicted', 'staleReport', 'stop'].includes(does),
)

interface Explored {
  reachable: Map<string, Whole>
  /** The keys of the wholes that lead to a whole, by the key of that whole. */
  predecessors: Map<string, string[]>
}

/**
 * Returns everything that one instance and its sync can reach. Checks the invariants of every action.
 * @param isEnd returns true for a whole from which no more actions are tried
 */
function explore(begun: Whole, isEnd: (whole: Whole) => boolean = () => false): Explored {
  const reachable = new Map<string, Whole>()
  const predecessors = new Map<string, string[]>()
  for (const open = [begun]; open.length > 0; ) {
    const from = open.pop() as Whole
    const key = keyOf(from)
    if (reachable.has(key)) continue
    reachable.set(key, from)
    if (isEnd(from)) continue
    for (const does of tried) {
      const action = { member: 0, does }
      const to = act(from, action)
      check(from, action, to)
      if (to === from) continue
      predecessors.set(keyOf(to), [...(predecessors.get(keyOf(to)) ?? []), key])
      open.push(to)
    }
  }
  return { reachable, predecessors }
}

function expectCompletes(wholes: readonly Whole[]): void {
  for (const whole of wholes) {
    expect(complete(whole), keyOf(whole)).not.toBeNull()
    expect(complete(act(whole, { member: 0, does: 'crash' })), `crash in ${keyOf(whole)}`).not.toBeNull()
  }
}

describe('one instance and its sync', () => {
  const { reachable, predecessors } = explore(wholeOf(1))

  it('reach every state of the sync except those of a reversal', () => {
    const states = new Set([...reachable.values()].map(stateOfSync))
    expect([...states].sort()).toEqual(
      [
        ...['initialising', 'replicating', 'replanning', 'undoing', 'restoring', 'failed', 'committed'],
        ...['gathering', 'takingTimestamp', 'applying', 'preparing', 'verifying', 'deciding'].map(
          (one) => `committing.${one}`,
        ),
        ...['decided.opening', 'decided.converting'],
      ].sort(),
    )
    expect(reachable.size).toBeGreaterThan(500)
  })

  it('can reach committed from every state that they can reach, crashes included', () => {
    const isOver = ({ members }: Whole) => members.every(({ snapshot }) => snapshot.matches({ committed: 'left' }))
    const leads = new Set<string>()
    for (const open = [...reachable].filter(([, whole]) => isOver(whole)).map(([key]) => key); open.length > 0; ) {
      const key = open.pop() as string
      if (leads.has(key)) continue
      leads.add(key)
      open.push(...(predecessors.get(key) ?? []))
    }
    expect([...reachable.keys()].filter((key) => !leads.has(key))).toEqual([])
  })

  it('undo an aborted commit without the operator, whatever the state of the instance is', () => {
    const undoing = [...reachable.values()].filter(({ sync }) => sync.matches('undoing'))
    const states = new Set(undoing.map(({ members: [one] }) => one && publicState(one.snapshot)))
    expect([...states].sort()).toEqual(['COMMITTING', 'FAILED', 'RUNNING'])
    const undone = undoing.map((whole) => act(act(whole, { member: 0, does: 'elect' }), { member: 0, does: 'step' }))
    expect(undone.filter(({ sync }) => sync.matches('undoing')).map(keyOf)).toEqual([])
  })

  it('reach committed with an operator who only resumes and commits, also after a crash', () => {
    expectCompletes([...reachable.values()].filter((_, at) => at % 12 === 0))
  })
})

describe('one instance and a reversed sync', () => {
  it.each([
    ['no oplog contains all changes since the commit, and collections are converged first', true],
    ['the oplog contains all changes since the commit, and they are followed', false],
  ])('%s: from every state of the reversal it reaches committed, crashes included', (_what, lost) => {
    // From `replicating` on, a reversed sync behaves like any other sync.
    const { reachable } = explore(reversedWhole(1, lost), ({ sync }) => sync.matches('replicating'))
    const states = new Set([...reachable.values()].map(stateOfSync))
    expect([...states].sort()).toEqual([
      ...(lost ? ['replanning'] : []),
      'replicating',
      'reversing.preparingDestination',
    ])
    expectCompletes([...reachable.values()])
  })
})

describe('several instances and their sync', () => {
  const actions = (count: number) =>
    fc.array(
      fc.record({
        member: fc.nat({ max: count - 1 }),
        does: fc.oneof(
          {
            weight: 5,
            arbitrary: fc.constantFrom('follow', 'step', 'open', 'claim', 'reached', 'initiallyVerified', 'copied'),
          },
          { weight: 2, arbitrary: fc.constantFrom('commit', 'elect', 'resume') },
          { weight: 1, arbitrary: fc.constantFrom(...memberActions) },
        ) as fc.Arbitrary<Action['does']>,
      }),
      { maxLength: 150 },
    )

  it.each([
    ['2', 2, wholeOf],
    ['3', 3, wholeOf],
    [
      '2 in a reversed sync whose changes since the commit are in no oplog',
      2,
      (count: number) => reversedWhole(count, true),
    ],
  ])('%s: keep a decision in any order of events, and all reach committed', (_what, count, begun) => {
    fc.assert(
      fc.property(actions(count), (happens) => {
        let whole = begun(count)
        for (const action of happens) {
          const next = act(whole, action)
          check(whole, action, next)
          whole = next
        }
        expectAbortable(whole)
        expect(
          complete(whole),
          `${stateOfSync(whole)}\n${whole.members.map(({ snapshot }) => JSON.stringify([snapshot.value, snapshot.context])).join('\n')}`,
        ).not.toBeNull()
      }),
      { numRuns: 150 },
    )
  })
})
