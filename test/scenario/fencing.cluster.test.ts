import { afterAll, beforeAll, expect, test } from 'vitest'
import { clockSteps, lateDelivery, podReplacement, suspension } from '../support/fencing-faults.ts'
import { loadBulk } from '../support/load-bulk.ts'
import { podsAreAllowed } from '../support/pod.ts'
import { startReplicaSet } from '../support/replica-set.ts'
import type { Pair } from '../support/scenario.ts'
import { type SteppedClock, startSteppedClock } from '../support/stepped-clock.ts'
import { runTeamScenario, type TeamFault } from '../support/team-scenario.ts'

/** A fixed sample of what `npm run chaos -- --fencing 200` runs in full; a failing seed is named and replays there. */

let pair: Pair
let clock: SteppedClock
beforeAll(async () => {
  clock = await startSteppedClock()
  const options = { oplogSizeMB: 1024 }
  const sets = [startReplicaSet(options), startReplicaSet({ ...options, clock })] as const
  const [source, destination] = await Promise.all(sets)
  pair = { source, destination }
  await loadBulk(source.uri, 'bulk', 20_000)
})
afterAll(async () => {
  await Promise.all([pair.source.stop(), pair.destination.stop()])
  clock.close()
})

const lateMS: [number, number] = [5_000, 7_000]
/** Just beyond a lease. */
const awayMS: [number, number] = [13_000, 14_000]

const sample: [number, number, () => TeamFault][] = [
  [801, 1, () => lateDelivery('cut', { lateMS, rounds: 2, when: 'running' })],
  [802, 1, () => lateDelivery('cut', { lateMS, rounds: 1, when: 'at commit' })],
  [803, 2, () => clockSteps(clock, 2)],
  [804, 2, () => suspension('coordinator', 'stand still', awayMS)],
  ...((await podsAreAllowed())
    ? ([[805, 1, () => podReplacement('suspended', [2_000, 3_000])]] as [number, number, () => TeamFault][])
    : []),
]

test.each(sample.map(([seed, instances, make]) => ({ seed, instances, make })))(
  'seed $seed, $instances instances: equal without verification',
  async ({ seed, instances, make }) => {
    const result = await runTeamScenario({ pair, seed, instances, fault: make(), steps: 60, keep: ['bulk'] })
    expect(result).toMatchObject({ problems: [] })
    expect(result.faults).toBeGreaterThan(0)
  },
)
