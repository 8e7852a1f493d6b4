import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { isExpired } from '../../src/domain/owner.ts'
import { type ModelInstance, World } from './ownership-model.ts'

type Step = { do: Action; who: number; whom: number; partition: number }

const weights = {
  arrive: 4,
  settle: 4,
  renew: 4,
  look: 8,
  claim: 10,
  release: 4,
  expire: 4,
  buryFirst: 6,
  burySecond: 6,
  die: 1,
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
  whom: fc.nat({ max: instances - 1 }),
  partition: fc.nat({ max: partitions - 1 }),
})

/** Long ones: to take a partition over wrongly takes half a dozen steps that nothing else comes between. */
const sequences = fc.array(step, { minLength: 20, maxLength: 250, size: 'max' })

function take(world: World, { do: action, who, whom, partition }: Step): void {
  const one = world.instances[who] as ModelInstance
  const other = world.instances[whom] as ModelInstance
  if (action === 'expire') world.expire(one.id)
  else if (action === 'startWrite') one.startWrite(partition)
  else if (action === 'endWrite') one.writing.clear()
  else if (action === 'pause') one.takesWork = !one.takesWork
  else if (action === 'claim') for (let free = 0; free < partitions; free++) one.claim(free)
  else if (action === 'buryFirst' || action === 'burySecond') one[action](other.id)
  else one[action]()
}

/** Asked after every step, so without the cost of `expect`. */
function expectOneWriter(world: World): void {
  for (let partition = 0; partition < partitions; partition++) {
    const writers = world.writersOf(partition)
    if (writers.length > 1) throw new Error(`partition ${partition} is written by ${writers.join(' and ')}`)
  }
}

/** Whoever lives does its rounds, in turn, with nothing going wrong any more. */
function rounds(world: World, count: number): void {
  const whole = Array.from({ length: partitions }, (_, partition) => partition)
  for (let round = 0; round < count; round++) {
    for (const one of world.instances) {
      if (one.token === null) continue
      one.renew()
      one.look()
      for (const { id } of world.instances) one.buryFirst(id)
      for (const { id } of world.instances) one.burySecond(id)
      one.look()
      for (const partition of whole) one.claim(partition)
      one.release()
      expectOneWriter(world)
    }
  }
}

describe('partitions that change hands', () => {
  it('have one writer at a time and one owner in an epoch, whatever happens in whatever order', () => {
    fc.assert(
      fc.property(sequences, (steps) => {
        const world = new World(instances, partitions)
        for (const instance of world.instances) {
          instance.arrive()
          instance.settle()
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

  it('all belong to the living after a few rounds without trouble, in equal shares', () => {
    fc.assert(
      fc.property(sequences, (steps) => {
        const world = new World(instances, partitions)
        for (const one of steps) take(world, one)
        // Those who are gone have no more writes under way, and their leases run out; the others are back at work.
        for (const one of world.instances) {
          one.writing.clear()
          one.renew()
          one.settle()
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

  it('go from a dead instance to the living only when its last write has ended', () => {
    const world = new World(2, 2)
    const [one, other] = world.instances as [ModelInstance, ModelInstance]
    one.arrive()
    one.settle()
    rounds(world, 1)
    expect([...one.held]).toEqual([0, 1])
    one.startWrite(1)
    one.die()
    world.expire(one.id)
    other.arrive()
    other.settle()
    rounds(world, 3)
    expect([...other.held]).toEqual([])
    one.writing.clear()
    rounds(world, 2)
    expect([...other.held]).toEqual([0, 1])
  })

  it('are not taken from a paused instance, which gets none besides', () => {
    const world = new World(2, 4)
    const [one, other] = world.instances as [ModelInstance, ModelInstance]
    for (const instance of [one, other]) {
      instance.arrive()
      instance.settle()
    }
    rounds(world, 3)
    const before = [...one.held]
    expect(before).toHaveLength(2)
    one.takesWork = false
    rounds(world, 3)
    expect([...one.held]).toEqual(before)
    other.die()
    world.expire(other.id)
    rounds(world, 3)
    expect([...one.held]).toEqual(before)
  })
})
