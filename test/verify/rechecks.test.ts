import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { type Recheck, Rechecks, type Side } from '../../src/verify/rechecks.ts'

const sides = ['source', 'destination'] as const
const collection = 'c'.repeat(16)
const idElement = (id: number): Buffer => Buffer.from([0x10, ...Buffer.from('_id\0'), id, 0, 0, 0])
const storedAs = (id: number) => ({ uuid: collection, idElement: idElement(id), token: 'stored' })
const idOf = ({ idElement }: { idElement: Buffer }): number => idElement[5] as number

type Step =
  | { do: 'changed'; id: number; side: Side }
  | { do: 'suspect'; id: number }
  | { do: 'found different'; id: number }
  | { do: 'batch'; side: Side }
  | { do: 'range' }
  | { do: 'take'; limit: number }
  | { do: 'return'; equal: boolean }
  | { do: 'checkpoint' }
  | { do: 'failed checkpoint' }
  | { do: 'revisit' }
  | { do: 'wait'; milliseconds: number }

const id = fc.integer({ min: 0, max: 1 })
const side = fc.constantFrom(...sides)
const step: fc.Arbitrary<Step> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('changed' as const), id, side }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('suspect' as const), id }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('found different' as const), id }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant('batch' as const), side }) },
  { weight: 1, arbitrary: fc.constant({ do: 'range' as const }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant('take' as const), limit: fc.integer({ min: 1, max: 4 }) }) },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('return' as const), equal: fc.boolean() }) },
  { weight: 3, arbitrary: fc.constant({ do: 'checkpoint' as const }) },
  { weight: 1, arbitrary: fc.constant({ do: 'failed checkpoint' as const }) },
  { weight: 1, arbitrary: fc.constant({ do: 'revisit' as const }) },
  {
    weight: 2,
    arbitrary: fc.record({ do: fc.constant('wait' as const), milliseconds: fc.integer({ min: 100, max: 6_000 }) }),
  },
)

/**
 * Tracks each change until a later comparison finds its document equal, and tracks what is durable. `lost` assumes a
 * crash and a restart at this moment: the streams are read again from their stored positions, ranges that are not
 * stored as done are scanned again, and stored rechecks are compared before any verdict.
 */
class World {
  readonly rechecks = new Rechecks()
  now = 1
  readonly newest: Record<Side, number> = { source: 1, destination: 1 }
  readonly position: Record<Side, number> = { source: 0, destination: 0 }
  /** For each stored id, the sides that are known to have changed it. */
  readonly stored = new Map<number, Set<Side>>()
  readonly unacknowledged = new Set<number>()
  range = 1
  rangesDone = 0
  /** All events so far. */
  readonly events: { id: number; side: Side; batch: number }[] = []
  open: { id: number; side: Side | null; range: number; taken: boolean }[] = []
  taken: Recheck[] = []

  take(step: Step): void {
    switch (step.do) {
      case 'changed': {
        const { id, side } = step
        const batch = this.newest[side]
        this.rechecks.changed(collection, idElement(id), side, batch, BigInt(batch))
        this.events.push({ id, side, batch })
        this.open.push({ id, side, range: 0, taken: false })
        return
      }
      case 'suspect':
        this.rechecks.suspect(collection, idElement(step.id), this.range)
        this.open.push({ id: step.id, side: null, range: this.range, taken: false })
        return
      case 'found different':
        this.rechecks.foundDifferent(collection, idElement(step.id))
        // The comparison of another document found this one. The recheck becomes durable before any position advances.
        this.checkpoint()
        this.open.push({ id: step.id, side: null, range: 0, taken: false })
        return
      case 'batch':
        this.newest[step.side] += 1
        return
      case 'range':
        this.range += 1
        return
      case 'take': {
        if (this.taken.length > 0) return // only one comparison runs at a time
        this.taken = this.rechecks.take(step.limit, 1n << 60n, this.now)
        const ids = new Set(this.taken.map(idOf))
        for (const change of this.open) if (ids.has(change.id)) change.taken = true
        return
      }
      case 'return': {
        const ids = new Set(this.taken.map(idOf))
        if (step.equal) this.open = this.open.filter((change) => !(change.taken && ids.has(change.id)))
        if (step.equal) this.rechecks.equal(this.taken)
        else this.rechecks.different(this.taken, this.now)
        for (const change of this.open) change.taken = false
        this.taken = []
        return
      }
      case 'checkpoint':
        this.checkpoint()
        return
      case 'failed checkpoint':
        // The write fails or is interrupted. It is unknown whether it took effect.
        for (const recheck of this.rechecks.beginStoring('stillDifferent')) this.unacknowledged.add(idOf(recheck))
        this.movePositions()
        return
      case 'revisit':
        if (this.taken.length > 0) return // does not run during a comparison
        for (const id of this.stored.keys()) this.rechecks.revisit(storedAs(id))
        return
      case 'wait':
        this.now += step.milliseconds
    }
  }

  checkpoint(): void {
    const removed = this.rechecks.takeRemovable().map(idOf)
    // Only existing entries are removed.
    expect(removed.filter((id) => !this.stored.has(id) && !this.unacknowledged.has(id))).toEqual([])
    for (const id of removed) this.stored.delete(id)
    for (const recheck of this.rechecks.beginStoring('stillDifferent')) {
      const marks = this.stored.get(idOf(recheck)) ?? new Set()
      for (const side of sides) if (recheck.newestBatch[side] > 0) marks.add(side)
      this.stored.set(idOf(recheck), marks)
    }
    this.rechecks.endStoring()
    this.rangesDone = Math.max(this.rangesDone, Math.min(this.range - 1, this.rechecks.safeRange()))
    this.movePositions()
  }

  /** A stored position covers only batches that the followers have read completely, and it never goes back. */
  movePositions(): void {
    for (const side of sides) {
      const safe = this.rechecks.safeBatch(side, this.newest[side] - 1)
      this.position[side] = Math.max(this.position[side], safe)
    }
  }

  /** The changes that a verifier started now would not compare, or whose side it would not know. */
  get lost(): object[] {
    const isNamedAgain = (id: number, side: Side): boolean =>
      this.events.some((event) => event.id === id && event.side === side && event.batch > this.position[side])
    return this.open.filter(({ id, side, range }) => {
      if (side) return !isNamedAgain(id, side) && !this.stored.get(id)?.has(side)
      const isScannedAgain = range > this.rangesDone
      return !isScannedAgain && !this.stored.has(id) && !sides.some((one) => isNamedAgain(id, one))
    })
  }
}

describe('rechecks', () => {
  it('are all found again by the next verifier after a crash at any moment', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 120, size: 'max' }), (steps) => {
        const world = new World()
        for (const one of steps) {
          world.take(one)
          expect(world.lost).toEqual([])
        }
      }),
      { numRuns: 2_000 },
    )
  })

  it('are due again or stored, for every change that no comparison has covered', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 1, maxLength: 80 }), (steps) => {
        const world = new World()
        for (const one of steps) world.take(one)
        world.take({ do: 'return', equal: false })
        world.now += 10_000
        const due = new Set(world.rechecks.take(100, 1n << 60n, world.now).map(idOf))
        for (const { id } of world.open) expect(due.has(id) || world.stored.has(id)).toBe(true)
      }),
    )
  })

  it('are removed from the store when they are compared again and are equal', () => {
    fc.assert(
      fc.property(fc.array(step, { minLength: 20, maxLength: 120, size: 'max' }), (steps) => {
        const world = new World()
        for (const one of steps) world.take(one)
        world.take({ do: 'return', equal: false })
        world.checkpoint()
        for (const _ of ['what was open', 'what was stored']) {
          world.take({ do: 'revisit' })
          world.now += 10_000
          world.take({ do: 'take', limit: 100 })
          world.take({ do: 'return', equal: true })
          world.checkpoint()
        }
        expect([...world.stored]).toEqual([])
      }),
    )
  })

  it('that change continually hold a position back only to their newest change', () => {
    const rechecks = new Rechecks()
    for (let batch = 1; batch <= 50; batch++) {
      rechecks.changed(collection, idElement(1), 'source', batch, BigInt(batch))
      rechecks.different(rechecks.take(1, 1n << 60n, batch), batch)
    }
    expect(rechecks.safeBatch('source', 50)).toBe(49)
    expect(rechecks.safeBatch('destination', 50)).toBe(50)
  })

  it('are not stored while they wait, even for a long time', () => {
    const rechecks = new Rechecks()
    for (let id = 0; id < 100; id++) rechecks.changed(collection, idElement(id), 'source', 1, 9n)
    expect(rechecks.take(100, 8n, 1_000_000)).toEqual([])
    expect(rechecks.beginStoring('stillDifferent')).toEqual([])
  })

  it.for(['wait', 'are compared'])(
    'that change after they were stored, while they %s, hold positions again',
    (when) => {
      const rechecks = new Rechecks()
      rechecks.revisit(storedAs(1))
      const taken = when === 'are compared' ? rechecks.take(1, 0n, 0) : []
      rechecks.changed(collection, idElement(1), 'destination', 4, 7n)
      rechecks.different(taken, 2)
      // A delayed write of an earlier verifier that compared it equal may still remove the stored entry.
      expect(rechecks.safeBatch('destination', 9)).toBe(3)
      const due = rechecks.beginStoring('everything')
      expect(due.map(({ newestBatch }) => newestBatch.destination)).toEqual([4])
      expect(rechecks.safeBatch('destination', 9)).toBe(3)
      rechecks.endStoring()
      expect(rechecks.safeBatch('destination', 9)).toBe(9)
    },
  )

  it('contain a document once, however often it changes', () => {
    const rechecks = new Rechecks()
    for (let change = 0; change < 10_000; change++) {
      rechecks.changed(collection, idElement(change % 7), sides[change % 2] as Side, change + 1, BigInt(change))
    }
    expect(rechecks.count).toBe(7)
  })

  it('are full at 60,000, and not full after some are resolved', () => {
    const rechecks = new Rechecks()
    const wide = (number: number): Buffer => {
      const element = idElement(0)
      element.writeInt32LE(number, 5)
      return element
    }
    for (let number = 0; number < 60_000; number++) rechecks.suspect(collection, wide(number), 1)
    expect(rechecks.full).toBe(true)
    const some = rechecks.take(100, 0n, 0)
    expect(rechecks.full).toBe(true)
    rechecks.equal(some)
    expect(rechecks.full).toBe(false)
  })

  it('leave memory when they are stored and stay different', () => {
    const rechecks = new Rechecks()
    rechecks.suspect(collection, idElement(1), 1)
    for (let attempt = 0; attempt < 10; attempt++) rechecks.different(rechecks.take(1, 0n, attempt * 10_000), attempt)
    expect(rechecks.safeRange()).toBe(0)
    expect(rechecks.beginStoring('stillDifferent')).toHaveLength(1)
    expect(rechecks.count).toBe(1)
    expect(rechecks.safeRange()).toBe(0)
    rechecks.endStoring()
    expect(rechecks.count).toBe(0)
    expect(rechecks.safeRange()).toBe(Number.POSITIVE_INFINITY)
  })

  it('are not due before their newest change on the source is applied', () => {
    const rechecks = new Rechecks()
    rechecks.changed(collection, idElement(1), 'source', 1, 5n)
    rechecks.changed(collection, idElement(1), 'source', 1, 9n)
    expect(rechecks.take(10, 8n, 0)).toEqual([])
    expect(rechecks.take(10, 9n, 0)).toHaveLength(1)
  })

  it('wait again when they change while they are compared', () => {
    const rechecks = new Rechecks()
    rechecks.changed(collection, idElement(1), 'source', 1, 5n)
    const taken = rechecks.take(1, 5n, 0)
    rechecks.changed(collection, idElement(1), 'destination', 4, 7n)
    rechecks.equal(taken)
    expect(rechecks.safeBatch('source', 9)).toBe(9)
    expect(rechecks.safeBatch('destination', 9)).toBe(3)
    expect(rechecks.take(1, 5n, 0)).toHaveLength(1)
  })
})

describe('the document key of a recheck', () => {
  const [key, other] = [Buffer.from('one key'), Buffer.from('another key')]
  const added = (...changes: (Buffer | null)[]): Rechecks => {
    const rechecks = new Rechecks()
    for (const [at, documentKey] of changes.entries()) {
      rechecks.changed(collection, idElement(1), sides[at % 2] as Side, at + 1, 1n, documentKey)
    }
    return rechecks
  }
  const keyOf = (rechecks: Rechecks) => rechecks.waiting[0]?.documentKey

  it.each<[string, (Buffer | null)[], Buffer | null]>([
    ['is the key in its events', [key, Buffer.from(key)], key],
    ['is unknown if an event has none, such as an insert', [key, null], null],
    ['stays unknown when a later event has a key', [null, key], null],
    ['is unknown if its events have different keys', [key, other, key], null],
    ['is not kept if it is longer than 256 bytes', [Buffer.alloc(300)], null],
  ])('%s', (_what, changes, expected) => {
    expect(keyOf(added(...changes))).toEqual(expected)
  })

  it('is forgotten when the scan, the store or a comparison of another spelling of the _id finds the document', () => {
    for (const work of ['suspect', 'revisit', 'foundDifferent'] as const) {
      const rechecks = added(key)
      if (work === 'revisit') rechecks.revisit(storedAs(1))
      else rechecks[work](collection, idElement(1), 1)
      expect(keyOf(rechecks)).toBeNull()
    }
  })

  it('is forgotten when a comparison finds the document different, and when the recheck is stored', () => {
    const compared = added(key)
    const taken = compared.take(1, 9n, 0)
    expect(taken[0]?.documentKey).toEqual(key)
    compared.changed(collection, idElement(1), 'source', 2, 1n, key)
    compared.different(taken, 0)
    expect(keyOf(compared)).toBeNull()
    const stored = added(key)
    stored.beginStoring('everything')
    expect(keyOf(stored)).toBeNull()
  })
})

describe('the stored entry of a recheck', () => {
  it('has a new token each time it is stored, and its removal names that token', () => {
    const rechecks = new Rechecks()
    const tokenOf = (changes: number): string | null => {
      rechecks.changed(collection, idElement(1), 'source', changes, 1n)
      const [due] = rechecks.beginStoring('everything')
      rechecks.endStoring()
      rechecks.equal(rechecks.take(1, 9n, Number.MAX_VALUE))
      expect(rechecks.takeRemovable()).toMatchObject([{ token: due?.token }])
      return due?.token ?? null
    }
    const tokens = [tokenOf(1), tokenOf(2)]
    expect(tokens).not.toContain(null)
    expect(new Set(tokens).size).toBe(2)
    rechecks.revisit(storedAs(1))
    rechecks.equal(rechecks.take(1, 9n, Number.MAX_VALUE))
    expect(rechecks.takeRemovable()).toMatchObject([{ token: 'stored' }])
  })

  it('stays until a read by _id finds the document equal, because a read by document key is not enough', () => {
    const key = Buffer.from('one key')
    const rechecks = new Rechecks()
    rechecks.revisit(storedAs(1))
    const [revisited] = rechecks.take(1, 9n, Number.MAX_VALUE)
    rechecks.changed(collection, idElement(1), 'source', 1, 1n, key)
    const [targeted] = rechecks.take(1, 9n, Number.MAX_VALUE)
    expect(targeted?.documentKey).toEqual(key)
    rechecks.equal([targeted as Recheck])
    expect(rechecks.takeRemovable()).toEqual([])
    rechecks.equal([revisited as Recheck])
    expect(rechecks.takeRemovable()).toHaveLength(1)
  })
})
