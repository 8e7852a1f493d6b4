import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { publicState } from '../../src/session/report-progress.ts'
import { type Action, act, complete, memberActions, stateOfSync, type Whole, wholeOf } from './whole-sync.ts'

const closed = ['committing.preparing', 'committing.verifying', 'committing.deciding']

/** What must hold whatever has happened. */
function check(before: Whole, { does, member }: Action, after: Whole): void {
  const state = stateOfSync(after)
  const describe = () => `${stateOfSync(before)} ─ ${does} by ${member} ─▶ ${state}`
  const { decided } = { decided: after.sync.hasTag('decided') }
  if (before.sync.hasTag('decided')) expect(decided, describe()).toBe(true)
  // Nothing is applied while the destination is compared with the source, or from the decision on.
  if (closed.includes(state) || decided) {
    expect(after.members.map(({ holds }) => holds).includes(true), describe()).toBe(false)
  }
  if (!before.sync.hasTag('decided') && decided) {
    expect([stateOfSync(before), does, before.leader], describe()).toEqual(['committing.deciding', 'step', member])
    expect(before.sync.context.request?.dryRun, describe()).toBe(false)
  }
  // A report of an earlier term changes nothing.
  if (does === 'staleReport') expect(after.sync, describe()).toBe(before.sync)
  // A verdict holds in its coordinator's term alone.
  if (after.sync.context.term > before.sync.context.term) expect(state, describe()).not.toBe('committing.deciding')
  for (const { snapshot } of after.members) {
    const { canWrite } = snapshot.context
    if (snapshot.matches('committed')) expect(state, describe()).toBe('committed')
    if (canWrite) expect(after.sync.hasTag('canWrite'), describe()).toBe(true)
    if (publicState(snapshot) === 'RUNNING' && snapshot.hasTag('canCommit')) expect(canWrite).toBe(false)
  }
}

/** Counters count up for ever; what matters is which is ahead. */
const keyOf = ({ sync, members, leader }: Whole): string => {
  const { term, attempt, aborts, failures, request, commitPoint: _point, quietUntil: _until, ...context } = sync.context
  const known = members.map(({ snapshot, open, holds, ...member }) => {
    const { attempt: own, abortsBefore, sync: seen, commitPoint: _own, limits: _limits, ...rest } = snapshot.context
    const { copyDrained: _copy, eventsDrained: _events, configuration: _configuration, ...flags } = rest
    const saw = seen && [seen.state, Math.sign(seen.attempt - attempt), Math.sign(seen.aborts - aborts)]
    const counts = [own && Math.sign(own - attempt), abortsBefore - aborts, member.term - term].map(Math.sign)
    return [snapshot.value, flags, counts, open, holds, saw, member.failures && member.failures - failures]
  })
  return JSON.stringify([sync.value, { ...context, asked: request?.dryRun }, known, leader])
}

/** A pause, and what makes no other difference to one instance than a failure or a crash does, is left to the random sequences. */
const tried = memberActions.filter(
  (does) => !['pause', 'drained', 'failWorker', 'buried', 'staleReport'].includes(does),
)

describe('one instance and its sync', () => {
  const reachable = new Map<string, Whole>()
  /** By the key of what they lead to. */
  const leadHere = new Map<string, string[]>()
  const begun = wholeOf(1)
  for (const open = [begun]; open.length > 0; ) {
    const from = open.pop() as Whole
    const key = keyOf(from)
    if (reachable.has(key)) continue
    reachable.set(key, from)
    for (const does of tried) {
      const action = { member: 0, does }
      const to = act(from, action)
      check(from, action, to)
      if (to === from) continue
      leadHere.set(keyOf(to), [...(leadHere.get(keyOf(to)) ?? []), key])
      open.push(to)
    }
  }

  it('come to every state of the sync but those of a reversal', () => {
    const states = new Set([...reachable.values()].map(stateOfSync))
    expect([...states].sort()).toEqual(
      [
        ...['initialising', 'replicating', 'undoing', 'restoring', 'failed', 'committed'],
        ...['gathering', 'takingPoint', 'applying', 'preparing', 'verifying', 'deciding'].map(
          (one) => `committing.${one}`,
        ),
        ...['decided.opening', 'decided.converting'],
      ].sort(),
    )
    expect(reachable.size).toBeGreaterThan(500)
  })

  it('can be led on to committed from every state that they can come to, crashes included', () => {
    const isOver = ({ members }: Whole) => members.every(({ snapshot }) => snapshot.matches({ committed: 'left' }))
    const leads = new Set<string>()
    for (const open = [...reachable].filter(([, whole]) => isOver(whole)).map(([key]) => key); open.length > 0; ) {
      const key = open.pop() as string
      if (leads.has(key)) continue
      leads.add(key)
      open.push(...(leadHere.get(key) ?? []))
    }
    expect([...reachable.keys()].filter((key) => !leads.has(key))).toEqual([])
  })

  it('undo an aborted commit without the operator, whatever has become of the instance', () => {
    const undoing = [...reachable.values()].filter(({ sync }) => sync.matches('undoing'))
    const states = new Set(undoing.map(({ members: [one] }) => one && publicState(one.snapshot)))
    expect([...states].sort()).toEqual(['COMMITTING', 'FAILED', 'RUNNING'])
    const undone = undoing.map((whole) => act(act(whole, { member: 0, does: 'elect' }), { member: 0, does: 'step' }))
    expect(undone.filter(({ sync }) => sync.matches('undoing')).map(keyOf)).toEqual([])
  })

  it('come to committed by themselves, and by an operator who resumes and commits, also after a crash', () => {
    const sample = [...reachable.values()].filter((_, at) => at % 12 === 0)
    for (const whole of sample) {
      expect(complete(whole), keyOf(whole)).not.toBeNull()
      expect(complete(act(whole, { member: 0, does: 'crash' })), `crash in ${keyOf(whole)}`).not.toBeNull()
    }
  })
})

describe('several instances and their sync', () => {
  const actions = (count: number) =>
    fc.array(
      fc.record({
        member: fc.nat({ max: count - 1 }),
        does: fc.oneof(
          { weight: 5, arbitrary: fc.constantFrom('follow', 'step', 'open', 'claim', 'reached', 'hashed', 'copied') },
          { weight: 2, arbitrary: fc.constantFrom('commit', 'elect', 'resume') },
          { weight: 1, arbitrary: fc.constantFrom(...memberActions) },
        ) as fc.Arbitrary<Action['does']>,
      }),
      { maxLength: 150 },
    )

  it.each([2, 3])(
    '%d: whatever happens in whatever order, what is decided stays, and all come to committed',
    (count) => {
      fc.assert(
        fc.property(actions(count), (happens) => {
          let whole = wholeOf(count)
          for (const action of happens) {
            const next = act(whole, action)
            check(whole, action, next)
            whole = next
          }
          expect(
            complete(whole),
            `${stateOfSync(whole)}\n${whole.members.map(({ snapshot }) => JSON.stringify([snapshot.value, snapshot.context])).join('\n')}`,
          ).not.toBeNull()
        }),
        { numRuns: 150 },
      )
    },
  )
})
