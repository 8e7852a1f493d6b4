import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadBulk } from '../support/load-bulk.ts'
import { startReplicaSet } from '../support/replica-set.ts'
import type { Pair } from '../support/scenario.ts'
import { coordinatorDies, cut, joinAndLeave, kill, stop } from '../support/team-faults.ts'
import { runTeamScenario, type TeamFault } from '../support/team-scenario.ts'

/** A fixed sample of what `npm run chaos -- --teams 100` runs in full; a failing seed is named and replays there. */

let pair: Pair
beforeAll(async () => {
  const options = { oplogSizeMB: 1024 }
  const [source, destination] = await Promise.all([startReplicaSet(options), startReplicaSet(options)])
  pair = { source, destination }
  await loadBulk(source.uri, 'bulk', 40_000)
})
afterAll(async () => {
  await Promise.all([pair.source.stop(), pair.destination.stop()])
})

/** Just beyond a lease. */
const awayMS = 13_000

const sample: [number, number, TeamFault][] = [
  [701, 3, kill('the coordinator', 1, true)],
  [702, 2, stop('anybody', { awayMS })],
  [703, 2, joinAndLeave()],
  [704, 2, cut('swallowed', { awayMS })],
  [705, 2, coordinatorDies('barrier', true)],
  [706, 2, coordinatorDies('restoreExpiry', false)],
]

test.each(sample.map(([seed, instances, fault]) => ({ seed, instances, fault, name: fault.name })))(
  'seed $seed, $instances instances, $name: equal, one owner in each epoch, taken over in time',
  async ({ seed, instances, fault }) => {
    const result = await runTeamScenario({ pair, seed, instances, fault, steps: 60, keep: ['bulk'] })
    expect(result).toMatchObject({ problems: [] })
    expect(result.faults).toBeGreaterThan(0)
  },
)
