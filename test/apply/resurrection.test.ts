import { describe, expect, it } from 'vitest'
import { explore, type Outcome, type Rules, rules, type SourceStep } from './resurrection-model.ts'

/** Everything a source can do to one document in up to so many steps. */
function histories(standing: boolean, length: number): SourceStep[][] {
  if (length === 0) return [[]]
  const first: SourceStep[] = standing ? ['update', 'delete'] : ['insert']
  return [[], ...first.flatMap((step) => histories(step !== 'delete', length - 1).map((rest) => [step, ...rest]))]
}

const scenarios = [true, false].flatMap((standing) => histories(standing, 3).map((steps) => ({ standing, steps })))

type Scenario = Omit<Parameters<typeof explore>[1], 'crashes'>

function tryAll(broken: Partial<Rules>, crashes: number, tried: readonly Scenario[] = scenarios): Outcome {
  const total: Outcome = { states: 0, quiet: 0, violation: null, stuck: null }
  for (const scenario of tried) {
    const outcome = explore({ ...rules, ...broken }, { ...scenario, crashes })
    total.states += outcome.states
    total.quiet += outcome.quiet
    if (outcome.violation && crashes > 0) return outcome
    const shorter = outcome.violation && (!total.violation || outcome.violation.length < total.violation.length)
    if (shorter) total.violation = outcome.violation
    total.stuck ??= outcome.stuck
  }
  return total
}

describe('a document deleted while its collection is copied', () => {
  it('is never resurrected, nor is any document lost or left outdated, whatever happens in which order', () => {
    const outcome = tryAll({}, 2)
    expect(outcome.violation).toBeNull()
    expect(outcome.stuck).toBeNull()
    expect(outcome.states).toBeGreaterThan(5_000)
    expect(outcome.quiet).toBeGreaterThan(200)
  })

  it('would be, were its identity not recorded', () => {
    expect(tryAll({ record: 'never' }, 0).violation).toEqual([
      'copy reads',
      'source: delete',
      'apply deletes',
      'copy inserts',
      'copy is stored as done',
      'copy ends',
    ])
  })

  it.each<[string, Partial<Rules>, number]>([
    ['recorded only after the delete', { record: 'after the delete' }, 0],
    ['its record forgotten in a crash', { assumesRecordsAfterCrash: false, asksStore: false }, 1],
    ['its collection called copied before the record is reconciled', { reconcilesBeforeCopied: false }, 1],
    ['the copy called done before its insert is acknowledged', { doneAfterInsert: false }, 0],
    ['the position stored before the write', { positionAfterWrite: false }, 1],
    ['the insert of a dead process not waited for', { waitsForTheDead: false }, 1],
  ])('would be, or lost, were %s', (_, broken, crashes) => {
    const { violation } = tryAll(broken, crashes)
    expect(violation).not.toBeNull()
    expect(violation?.includes('crash')).toBe(crashes > 0)
  })

  it.each<[string, Partial<Rules>]>([
    ['its record forgotten in a crash', { assumesRecordsAfterCrash: false, asksStore: false }],
    ['the position stored before the write', { positionAfterWrite: false }],
    ['the insert of a dead process not waited for', { waitsForTheDead: false }],
  ])('needs a crash for that when %s', (_, broken) => {
    expect(tryAll(broken, 0).violation).toBeNull()
  })
})

describe('a document of a collection that converges', () => {
  const existing = (['same', 'other', 'nothing'] as const).flatMap((one) =>
    scenarios.map((scenario) => ({ ...scenario, existing: one })),
  )

  it('ends as on the source, whatever stands on the destination and whatever happens in which order', () => {
    const outcome = tryAll({}, 2, existing)
    expect(outcome.violation).toBeNull()
    expect(outcome.stuck).toBeNull()
    expect(outcome.states).toBeGreaterThan(15_000)
    expect(outcome.quiet).toBeGreaterThan(600)
  })

  it('would go back to an old version, were the bytes that were read written', () => {
    const { violation } = tryAll({ differing: 'replaced' }, 0, existing)
    expect(violation).toContain('convergence replaces')
    expect(violation).toContain('apply writes update')
  })

  it.each<[string, Partial<Rules>, number]>([
    ['its range called done before it is recorded', { doneAfterInsert: false }, 0],
    ['the copy ended by an owner who does not know of records of others', { asksStore: false }, 0],
    ['the copy called ended before the record is reconciled', { reconcilesBeforeCopied: false }, 1],
    ['a delete recorded only after it', { record: 'after the delete' }, 0],
  ])('would stay different, were %s', (_, broken, crashes) => {
    expect(tryAll(broken, crashes, existing).violation).not.toBeNull()
  })
})
