import { loadBulk } from '../test/support/load-bulk.ts'
import { converging } from '../test/support/older-copy.ts'
import { startReplicaSet } from '../test/support/replica-set.ts'
import { coordinatorDies, cut, joinAndLeave, kill, pauseOne, stop } from '../test/support/team-faults.ts'
import { runTeamScenario } from '../test/support/team-scenario.ts'

/** Every seed takes the next fault. */
const faults = (awayMS: number) => [
  kill('anybody', 3, true),
  kill('the coordinator', 2, true),
  kill('the coordinator', 1, false),
  stop('anybody', { awayMS }),
  joinAndLeave(),
  cut('swallowed', { awayMS }),
  coordinatorDies('barrier', true),
  pauseOne(),
]

/**
 * Runs syncs of two instances that converge on a destination with an older copy, under a workload with DDL, one after
 * the other; prints a line for each. Returns the names of those that failed.
 */
export async function runConvergences(runs: {
  count: number
  from: number
  steps: number
  awayMS: number
}): Promise<{ passed: number; failed: string[] }> {
  const failed: string[] = []
  let passed = 0
  const options = { oplogSizeMB: 1024 }
  const [source, destination] = await Promise.all([startReplicaSet(options), startReplicaSet(options)])
  const pair = { source, destination }
  try {
    await loadBulk(source.uri, 'bulk', 60_000)
    const variants = faults(runs.awayMS)
    for (let seed = runs.from; seed < runs.from + runs.count; seed++) {
      const fault = converging(variants[seed % variants.length] as ReturnType<typeof kill>)
      const name = `${fault.name}, seed ${seed}`
      const problems = await runTeamScenario({
        pair,
        seed,
        instances: 2,
        fault,
        steps: runs.steps,
        keep: ['bulk'],
      }).then(
        (result) => result.problems,
        (error) => [error instanceof Error ? error.message : String(error)],
      )
      if (problems.length === 0) passed += 1
      else failed.push(name)
      console.log(`${problems.length === 0 ? 'ok  ' : 'FAIL'} ${name}`)
      for (const problem of problems.slice(0, 8)) console.log(`     ${problem}`)
    }
  } finally {
    await Promise.all([source.stop(), destination.stop()])
  }
  return { passed, failed }
}
