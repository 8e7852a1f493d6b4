import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isExpired } from '../../src/domain/owner.ts'
import { type ModelInstance, World } from './ownership-model.ts'

type Step = { do: Action; who: number; target: number; partition: number }

const weights = {
  beginLease: 4,
  completeLease: 4,
  renew: 4,
  read: 8,
  claim: 10,
  release: 4,
  expire: 4,
  beginEviction: 6,
  completeEviction: 6,
  crash: 1,
  pause: 1,
  startWrite: 5,
  endWrite: 2,
}
type Action = keyof typeof weights
const instances = 3
const partitions = 3

const step: fc.Arbitrary<Step> = fc.record({
  do: fc.oneof(
    ...(Object.entries(weights) as [Action, number][]).map(([action, weight]) => ({
      weight,
      arbitrary: fc.constant(action),
    })),
  ),
  who: fc.nat({ max: instances - 1 }),
  target: fc.nat({ max: instances - 1 }),
  partition: fc.nat({ max: partitions - 1 }),
})

/** The sequences are long, because a wrong takeover of a partition needs half a dozen particular steps in a row. */
const sequences = fc.array(step, { minLength: 20, maxLength: 250, size: 'max' })

function take(world: World, { do: action, who, target, partition }: Step): void {
  const one = world.instances[who] as ModelInstance
  const other = world.instances[target] as ModelInstance
  if (action === 'expire') world.expire(one.id)
  else if (action === 'startWrite') one.startWrite(partition)
  else if (action === 'endWrite') one.writing.clear()
  else if (action === 'pause') one.takesWork = !one.takesWork
  else if (action === 'claim') for (let free = 0; free < partitions; free++) one.claim(free)
  else if (action === 'beginEviction' || action === 'completeEviction') one[action](other.id)
  else one[action]()
}

/** Called after every step, so it avoids the cost of `expect`. */
function expectOneWriter(world: World): void {
  for (let partition = 0; partition < partitions; partition++) {
    const writers = world.writersOf(partition)
    if (writers.length > 1) throw new Error(`partition ${partition} is written by ${writers.join(' and ')}`)
  }
}

/** Runs rounds of every live instance in turn, without further faults. */
function rounds(world: World, count: number): void {
  const whole = Array.from({ length: partitions }, (_, partition) => partition)
  for (let round = 0; round < count; round++) {
    for (const one of world.instances) {
      if (one.token === null) continue
      one.renew()
      one.read()
      for (const { id } of world.instances) one.beginEviction(id)
      for (const { id } of world.instances) one.completeEviction(id)
      one.read()
      for (const partition of whole) one.claim(partition)
      one.release()
      expectOneWriter(world)
    }
  }
}

describe('partitions that change owners', () => {
  it('have one writer at a time and one owner in an epoch, in any order of events', () => {
    fc.assert(
      fc.property(sequences, (steps) => {
        const world = new World(instances, partitions)
        for (const instance of world.instances) {
          instance.beginLease()
          instance.completeLease()
        }
        rounds(world, 2)
        for (const one of steps) {
          take(world, one)
          expectOneWriter(world)
        }
      }),
      { numRuns: 400 },
    )
  })

  it('belong to the live instances in equal shares after a few rounds without faults', () => {
    fc.assert(
      fc.property(sequences, (steps) => {
        const world = new World(instances, partitions)
        for (const one of steps) take(world, one)
        // The writes of crashed instances have ended, and their leases expire. The other instances are at work again.
        for (const one of world.instances) {
          one.writing.clear()
          one.renew()
          one.completeLease()
          if (one.token === null) world.expire(one.id)
        }
        rounds(world, 5)
        const leases = [...world.leases.values()]
        const workers = world.instances.filter((one) => one.token !== null && one.takesWork)
        if (workers.length === 0) return
        const shares = new Map(workers.map(({ token }) => [token, 0]))
        for (const { owner } of world.claims) {
          expect(owner).not.toBeNull()
          expect(isExpired(owner as string, leases)).toBe(false)
          if (shares.has(owner)) shares.set(owner, (shares.get(owner) ?? 0) + 1)
        }
        const counts = [...shares.values()]
        expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(1)
      }),
      { numRuns: 400 },
    )
  })

  it('pass from a crashed instance to a live one only when the last write of the crashed instance has ended', () => {
    const world = new World(2, 2)
    const [one, other] = world.instances as [ModelInstance, ModelInstance]
    one.beginLease()
    one.completeLease()
    rounds(world, 1)
    expect([...one.held]).toEqual([0, 1])
    one.startWrite(1)
    one.crash()
    world.expire(one.id)
    other.beginLease()
    other.completeLease()
    rounds(world, 3)
    expect([...other.held]).toEqual([])
    one.writing.clear()
    rounds(world, 2)
    expect([...other.held]).toEqual([0, 1])
  })

  it('are not taken from a paused instance, which gets no others', () => {
    const world = new World(2, 4)
    const [one, other] = world.instances as [ModelInstance, ModelInstance]
    for (const instance of [one, other]) {
      instance.beginLease()
      instance.completeLease()
    }
    rounds(world, 3)
    const before = [...one.held]
    expect(before).toHaveLength(2)
    one.takesWork = false
    rounds(world, 3)
    expect([...one.held]).toEqual(before)
    other.crash()
    world.expire(other.id)
    rounds(world, 3)
    expect([...one.held]).toEqual(before)
  })
})
