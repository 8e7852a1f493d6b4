import { afterAll, beforeAll, expect, test } from 'vitest'
import { loadBulk } from '../support/load-bulk.ts'
import { converging } from '../support/older-copy.ts'
import { startReplicaSet } from '../support/replica-set.ts'
import type { Pair } from '../support/scenario.ts'
import { kill, stop } from '../support/team-faults.ts'
import { runTeamScenario, type TeamFault } from '../support/team-scenario.ts'

/** A fixed sample of what `npm run chaos -- --converge 100` runs in full; a failing seed is named and replays there. */

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

const sample: [number, TeamFault][] = [
  [901, kill('anybody', 3, true)],
  [902, kill('the coordinator', 1, false)],
  [903, stop('anybody', { awayMS: 13_000 })],
]

test.each(sample.map(([seed, fault]) => ({ seed, fault: converging(fault) })))(
  'seed $seed, two instances, $fault.name: equal',
  async ({ seed, fault }) => {
    const result = await runTeamScenario({ pair, seed, instances: 2, fault, steps: 60, keep: ['bulk'] })
    expect(result).toMatchObject({ problems: [] })
    expect(result.faults).toBeGreaterThan(0)
  },
)
