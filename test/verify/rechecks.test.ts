import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Recheck, Rechecks, type Side } from '../../src/verify/rechecks.ts'

const sides = ['source', 'destination'] as const
const collection = 'c'.repeat(16)
const idElement = (id: number): Buffer => Buffer.from([0x10, ...Buffer.from('_id\0'), id, 0, 0, 0])
const idOf = (recheck: Pick<Recheck, 'idElement'>): number => recheck.idElement[5] as number

type Step =
  | { do: 'changed'; id: number; side: Side }
  | { do: 'suspect'; id: number }
  | { do: 'batch'; side: Side }
  | { do: 'take'; limit: number }
  | { do: 'give back'; equal: boolean }
  | { do: 'checkpoint' }
  | { do: 'revisit' }
  | { do: 'wait'; milliseconds: number }

const id = fc.integer({ min: 0, max: 1 })
const side = fc.constantFrom(...sides)
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('changed' as const), id, side }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('suspect' as const), id }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('batch' as const), side }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('take' as const), limit: fc.integer({ min: 1, max: 4 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('give back' as const), equal: fc.boolean() }) },
  { weight: 3, arbitrary: fc.constant({ do: 'checkpoint' as const }) },
  { weight: 1, arbitrary: fc.constant({ do: 'revisit' as const }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('wait' as const), milliseconds: fc.integer({ min: 100, max: 6_000 }) }),
  },
)

/** Every change on its own, open until its document was compared equal after it; and what is stored. */
class World {
  readonly rechecks = new Rechecks()
  now = 1
  readonly newest: Record<Side, number> = { source: 1, destination: 1 }
  readonly position: Record<Side, number> = { source: 0, destination: 0 }
  readonly stored = new Set<number>()
  open: { id: number; side: Side; batch: number; taken: boolean }[] = []
  taken: Recheck[] = []

  take(step: Step): void {
    switch (step.do) {
      case 'changed': {
        const batch = this.newest[step.side]
        this.rechecks.changed(collection, idElement(step.id), step.side, batch, BigInt(batch), this.now)
        this.open.push({ id: step.id, side: step.side, batch, taken: false })
        return
      }
      case 'suspect':
        this.rechecks.suspect(collection, idElement(step.id), this.now)
        return
      case 'batch':
        this.newest[step.side] += 1
        return
      case 'take': {
        if (this.taken.length > 0) return // one at a time compares
        this.taken = this.rechecks.take(step.limit, 1n << 60n, this.now)
        const ids = new Set(this.taken.map(idOf))
        for (const change of this.open) if (ids.has(change.id)) change.taken = true
        return
      }
      case 'give back': {
        const ids = new Set(this.taken.map(idOf))
        if (step.equal) this.open = this.open.filter((change) => !(change.taken && ids.has(change.id)))
        if (step.equal) this.rechecks.settled(this.taken)
        else this.rechecks.different(this.taken, this.now)
        for (const change of this.open) change.taken = false
        this.taken = []
        return
      }
      case 'checkpoint':
        this.checkpoint()
        return
      case 'revisit':
        if (this.taken.length > 0) return // not beside a comparison
        for (const id of this.stored) this.rechecks.revisit(collection, idElement(id), this.now)
        return
      case 'wait':
        this.now += step.milliseconds
    }
  }

  checkpoint(): void {
    for (const recheck of this.rechecks.dueForStore(this.now)) {
      this.stored.add(idOf(recheck))
      recheck.stored = true
    }
    this.rechecks.leavePatientOnesToStore()
    for (const recheck of this.rechecks.takeSettledStored()) this.stored.delete(idOf(recheck))
    // The batch being read now is not read to its end.
    for (const side of sides) this.position[side] = this.rechecks.safeBatch(side, this.newest[side] - 1)
  }
}

describe('rechecks', () => {
  it('let no stored position pass a change that is neither stored nor compared equal since', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 120, size: 'max' }), (steps) => {
        const world = new World()
        for (const one of steps) {
          world.take(one)
          const lost = world.open.filter(
            (change) => change.batch <= world.position[change.side] && !world.stored.has(change.id),
          )
          expect(lost).toEqual([])
        }
      }),
      { numRuns: 2_000 },
    )
  })

  it('come back for every change after the moment they were taken', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 80 }), (steps) => {
        const world = new World()
        for (const one of steps) world.take(one)
        world.take({ do: 'give back', equal: false })
        world.now += 10_000
        const due = new Set(world.rechecks.take(100, 1n << 60n, world.now).map(idOf))
        for (const { id } of world.open) expect(due.has(id) || world.stored.has(id)).toBe(true)
      }),
    )
  })

  it('that were left to the store and are equal by now leave it, once they are looked at again', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 120, size: 'max' }), (steps) => {
        const world = new World()
        for (const one of steps) world.take(one)
        world.take({ do: 'give back', equal: false })
        world.checkpoint()
        world.take({ do: 'revisit' })
        world.now += 10_000
        world.take({ do: 'take', limit: 100 })
        world.take({ do: 'give back', equal: true })
        world.checkpoint()
        world.take({ do: 'revisit' })
        world.take({ do: 'take', limit: 100 })
        world.take({ do: 'give back', equal: true })
        world.checkpoint()
        expect([...world.stored]).toEqual([])
      }),
    )
  })

  it.for(['waits', 'is compared'])('that change after they were stored, while it %s, hold positions again', (when) => {
    const rechecks = new Rechecks()
    rechecks.revisit(collection, idElement(1), 0)
    const taken = when === 'is compared' ? rechecks.take(1, 0n, 0) : []
    rechecks.changed(collection, idElement(1), 'destination', 4, 7n, 1)
    rechecks.different(taken, 2)
    // Whoever stored it before, and has it among what he may remove, may still do so.
    expect(rechecks.safeBatch('destination', 9)).toBe(3)
    const due = rechecks.dueForStore(10_000)
    expect(due.map(({ firstBatch }) => firstBatch.destination)).toEqual([4])
    for (const recheck of due) recheck.stored = true
    expect(rechecks.safeBatch('destination', 9)).toBe(9)
  })

  it('hold a document once, however often it changes', () => {
    const rechecks = new Rechecks()
    for (let change = 0; change < 10_000; change++) {
      rechecks.changed(collection, idElement(change % 7), sides[change % 2] as Side, change + 1, BigInt(change), change)
    }
    expect(rechecks.count).toBe(7)
  })

  it('are full at 60,000, and not once some are settled', () => {
    const rechecks = new Rechecks()
    const wide = (number: number): Buffer => {
      const element = idElement(0)
      element.writeInt32LE(number, 5)
      return element
    }
    for (let number = 0; number < 60_000; number++) rechecks.suspect(collection, wide(number), 0)
    expect(rechecks.full).toBe(true)
    const some = rechecks.take(100, 0n, 0)
    expect(rechecks.full).toBe(true)
    rechecks.settled(some)
    expect(rechecks.full).toBe(false)
  })

  it('leave memory when they are stored and stay different', () => {
    const rechecks = new Rechecks()
    rechecks.suspect(collection, idElement(1), 0)
    for (let attempt = 0; attempt < 10; attempt++) rechecks.different(rechecks.take(1, 0n, attempt * 10_000), attempt)
    rechecks.leavePatientOnesToStore()
    expect(rechecks.count).toBe(1)
    for (const recheck of rechecks.dueForStore(100_000)) recheck.stored = true
    rechecks.leavePatientOnesToStore()
    expect(rechecks.count).toBe(0)
  })

  it('are not due before their newest change on the source is applied', () => {
    const rechecks = new Rechecks()
    rechecks.changed(collection, idElement(1), 'source', 1, 5n, 0)
    rechecks.changed(collection, idElement(1), 'source', 1, 9n, 0)
    expect(rechecks.take(10, 8n, 0)).toEqual([])
    expect(rechecks.take(10, 9n, 0)).toHaveLength(1)
  })

  it('wait again, from now on, when they change while they are compared', () => {
    const rechecks = new Rechecks()
    rechecks.changed(collection, idElement(1), 'source', 1, 5n, 0)
    const taken = rechecks.take(1, 5n, 0)
    rechecks.changed(collection, idElement(1), 'destination', 4, 7n, 0)
    rechecks.settled(taken)
    expect(rechecks.safeBatch('source', 9)).toBe(9)
    expect(rechecks.safeBatch('destination', 9)).toBe(3)
    expect(rechecks.take(1, 5n, 0)).toHaveLength(1)
  })
})
