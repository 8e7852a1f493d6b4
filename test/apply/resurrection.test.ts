import { describe, expect, it } from 'vitest'
import { explore, type Outcome, type Rules, rules, type SourceStep } from './resurrection-model.ts'

/** Returns every sequence of up to `length` changes that a source can make to one document. */
function histories(exists: boolean, length: number): SourceStep[][] {
  if (length === 0) return [[]]
  const first: SourceStep[] = exists ? ['update', 'delete'] : ['insert']
  return [[], ...first.flatMap((step) => histories(step !== 'delete', length - 1).map((rest) => [step, ...rest]))]
}

const scenarios = [true, false].flatMap((exists) => histories(exists, 3).map((steps) => ({ exists, steps })))

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
  it('is never resurrected, lost or left outdated in any interleaving', () => {
    const outcome = tryAll({}, 2)
    expect(outcome.violation).toBeNull()
    expect(outcome.stuck).toBeNull()
    expect(outcome.states).toBeGreaterThan(5_000)
    expect(outcome.quiet).toBeGreaterThan(200)
  })

  it('would be resurrected if its identity were not recorded', () => {
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
    ['its identity were recorded only after the delete', { record: 'after the delete' }, 0],
    ['its record were forgotten in a crash', { assumesRecordsAfterCrash: false, asksStore: false }, 1],
    ['its collection were stored as copied before the record is reconciled', { reconcilesBeforeCopied: false }, 1],
    ['the copy were stored as done before its insert is acknowledged', { doneAfterInsert: false }, 0],
    ['the position were stored before the write', { positionAfterWrite: false }, 1],
    ['a successor did not wait for the insert of a crashed process', { waitsForDelayedWrites: false }, 1],
  ])('would be resurrected or lost if %s', (_, broken, crashes) => {
    const { violation } = tryAll(broken, crashes)
    expect(violation).not.toBeNull()
    expect(violation?.includes('crash')).toBe(crashes > 0)
  })

  it.each<[string, Partial<Rules>]>([
    ['its record were forgotten in a crash', { assumesRecordsAfterCrash: false, asksStore: false }],
    ['the position were stored before the write', { positionAfterWrite: false }],
    ['a successor did not wait for the insert of a crashed process', { waitsForDelayedWrites: false }],
  ])('would be neither resurrected nor lost without a crash if %s', (_, broken) => {
    expect(tryAll(broken, 0).violation).toBeNull()
  })
})

describe('a document of a collection that is read in natural order', () => {
  const natural = scenarios.map((scenario) => ({ ...scenario, natural: true }))

  it('is never resurrected, lost or left outdated, even if it is read again or not at all', () => {
    const outcome = tryAll({}, 2, natural)
    expect(outcome.violation).toBeNull()
    expect(outcome.stuck).toBeNull()
    expect(outcome.states).toBeGreaterThan(10_000)
    expect(outcome.quiet).toBeGreaterThan(200)
  })

  it('would be lost if the position were stored before the insert is acknowledged', () => {
    const { violation } = tryAll({ positionAfterInsert: false }, 1, natural)
    expect(violation?.slice(0, 4)).toEqual([
      'copy reads',
      'position of the copy is stored',
      'crash',
      'copy is stored as done',
    ])
  })

  it('would be lost if the copy resumed at a record id of another server', () => {
    expect(tryAll({ resumesAtSameServer: false }, 0, natural).violation).toEqual([
      'copy resumes at a record id of another server',
      'copy is stored as done',
      'copy ends',
    ])
  })

  it.each<[string, Partial<Rules>, number]>([
    ['its identity were recorded only after the delete', { record: 'after the delete' }, 0],
    ['its record were forgotten in a crash', { assumesRecordsAfterCrash: false, asksStore: false }, 1],
    ['the copy were stored as done before its insert is acknowledged', { doneAfterInsert: false }, 0],
    ['a successor did not wait for the insert of a crashed process', { waitsForDelayedWrites: false }, 1],
  ])('would be resurrected or lost if %s', (_, broken, crashes) => {
    expect(tryAll(broken, crashes, natural).violation).not.toBeNull()
  })
})

describe('a document of a converging collection', () => {
  const existing = (['same', 'other', 'nothing'] as const).flatMap((one) =>
    scenarios.map((scenario) => ({ ...scenario, existing: one })),
  )

  it('ends equal to the source for any document on the destination and in any interleaving', () => {
    const outcome = tryAll({}, 2, existing)
    expect(outcome.violation).toBeNull()
    expect(outcome.stuck).toBeNull()
    expect(outcome.states).toBeGreaterThan(15_000)
    expect(outcome.quiet).toBeGreaterThan(600)
  })

  it('would return to an old version if the convergence wrote the bytes that it read', () => {
    const { violation } = tryAll({ differing: 'replaced' }, 0, existing)
    expect(violation).toContain('convergence replaces')
    expect(violation).toContain('apply writes update')
  })

  it.each<[string, Partial<Rules>, number]>([
    ['its range were stored as done before the document is recorded', { doneAfterInsert: false }, 0],
    ['the owner that ends the copy did not ask for the records of others', { asksStore: false }, 0],
    ['the collection were stored as copied before the record is reconciled', { reconcilesBeforeCopied: false }, 1],
    ['a delete were recorded only after it was applied', { record: 'after the delete' }, 0],
  ])('would stay different if %s', (_, broken, crashes) => {
    expect(tryAll(broken, crashes, existing).violation).not.toBeNull()
  })

  describe('whose older events are applied during or after its convergence, and which changed without events', () => {
    const older = [...histories(true, 2), ...histories(false, 2)]
    const behind = existing
      .filter(({ steps }) => steps.length <= 1)
      .flatMap((scenario) => older.map((backlog) => ({ ...scenario, backlog })))

    it('ends equal to the source', () => {
      const outcome = tryAll({}, 2, behind)
      expect(outcome.violation).toBeNull()
      expect(outcome.stuck).toBeNull()
      expect(outcome.quiet).toBeGreaterThan(300)
    })

    it('would be lost, resurrected or left old if these events were applied as they are', () => {
      const isViolated = (backlog: SourceStep, exists: boolean): boolean =>
        tryAll({ trustsOlderEvents: true }, 0, [{ exists, steps: [], existing: 'same', backlog: [backlog] }])
          .violation !== null
      expect(isViolated('delete', true)).toBe(true)
      expect(isViolated('insert', false)).toBe(true)
      expect(isViolated('insert', true)).toBe(true)
    })
  })
})
