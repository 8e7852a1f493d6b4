import { describe, expect, it, vi } from 'vitest'
import { smallWorld } from './options.ts'
import { type SimulationResult, simulate } from './run.ts'

/** Worlds take a second or two of CPU each; a machine that is busy with servers takes its time. */
vi.setConfig({ testTimeout: 120_000 })

function outcome({ violation, steps, seconds, events, faults }: SimulationResult): object {
  return { violation, steps, seconds, events, faults: [...faults] }
}

describe('a simulated world', () => {
  // 12, 26 and 49 found that partitions counted as come to a barrier before anything of them was read; 591 a claim that came
  // through after it was given up as lost, and was neither applied nor given back; 376 a lease taken again while the verifier's last words of the life before were under way.
  it.each([1, 2, 12, 26, 49, 376, 591])('keeps every invariant and comes to rest, seed %i', async (seed) => {
    const { violation, events, faults } = await simulate({ ...smallWorld, seed })
    expect(violation).toBeNull()
    expect(events).toBeGreaterThan(0)
    expect(faults.size).toBeGreaterThan(0)
  })

  // 9 and 50 found an instance whose lease was lost before it had first looked who coordinates: it waited for that, and could take no lease before.
  it.each([4, 9, 50])('keeps them when definitions change many times a second, seed %i', async (seed) => {
    const world = { ...smallWorld, seed, definitionRate: 7.5, rate: 100, faultRate: 1.5 }
    expect((await simulate(world)).violation).toBeNull()
  })

  it.each([1, 6, 14])('keeps them while collections are planned and copied, seed %i', async (seed) => {
    const { violation, faults } = await simulate({ ...smallWorld, seed, copies: true })
    expect(violation).toBeNull()
    expect(faults.size).toBeGreaterThan(0)
  })

  it.each([
    [1, 1],
    [3, 1],
    [1, 2],
    [6, 2],
  ])(
    'keeps them while the verifier uses what event application reads, seed %i, %i instances',
    async (seed, instances) => {
      const { violation, shared } = await simulate({ ...smallWorld, seed, instances })
      expect(violation).toBeNull()
      expect(shared).toBeGreaterThan(20)
    },
  )

  it('is the same world again from the same seed', async () => {
    const options = { ...smallWorld, seed: 9, steps: 4_000 }
    expect(outcome(await simulate(options))).toEqual(outcome(await simulate(options)))
  })
})
