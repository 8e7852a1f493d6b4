import { Random } from '../test/support/random.ts'
import type { Pair } from '../test/support/scenario.ts'
import {
  barrierSteps,
  commitSteps,
  coordinatorDies,
  cut,
  joinAndLeave,
  kill,
  pauseOne,
  stop,
} from '../test/support/team-faults.ts'
import { runTeamScenario, type TeamFault } from '../test/support/team-scenario.ts'

/** Faults of single instances by their kind; every seed of a kind takes the next of its variants. */
const kinds: Record<string, (awayMS: number) => (TeamFault | undefined)[]> = {
  none: () => [undefined],
  kill: () => [
    kill('anybody', 3, true),
    kill('the coordinator', 2, true),
    kill('anybody', 1, false),
    kill('the coordinator', 1, false),
  ],
  stop: (awayMS) => [stop('anybody', { awayMS }), stop('the coordinator', { awayMS })],
  join: () => [joinAndLeave()],
  cut: (awayMS) => [cut('refused', { awayMS }), cut('swallowed', { awayMS })],
  coordinator: () =>
    [...barrierSteps, ...commitSteps].flatMap((step) => [coordinatorDies(step, true), coordinatorDies(step, false)]),
  pause: () => [pauseOne()],
}

export const teamFaultKinds = Object.keys(kinds)

export interface TeamRuns {
  count: number
  /** 0: two, three and four in turn. */
  instances: number
  kinds: string[]
  from: number
  steps: number
  awayMS: number
}

/** Runs one scenario after the other; prints a line for each. Returns the names of those that failed. */
export async function runTeams(pair: Pair, runs: TeamRuns): Promise<{ passed: number; failed: string[] }> {
  const failed: string[] = []
  let passed = 0
  for (let seed = runs.from; seed < runs.from + runs.count; seed++) {
    const kind = runs.kinds[seed % runs.kinds.length] ?? ''
    const variants = kinds[kind]?.(runs.awayMS) ?? []
    const fault = variants[Math.floor(seed / runs.kinds.length) % variants.length]
    const instances = runs.instances || new Random(`instances ${seed}`).int(2, 4)
    const name = `${instances} instances, ${fault?.name ?? 'no fault'}, seed ${seed}`
    const begun = performance.now()
    try {
      const result = await runTeamScenario({ pair, seed, instances, steps: runs.steps, keep: ['bulk'], ...at(fault) })
      const good = result.problems.length === 0
      if (good) passed += 1
      else failed.push(name)
      const taken = `${result.takeovers} claims taken over in at most ${(result.slowestTakeoverMS / 1_000).toFixed(1)} s`
      const seconds = ((performance.now() - begun) / 1_000).toFixed(1)
      console.log(
        `${good ? 'ok  ' : 'FAIL'} ${name} (${seconds} s) ${result.documents} documents, ${result.faults} faults, ` +
          `${taken}, could write within ${result.spreadMS} ms`,
      )
      for (const problem of result.problems.slice(0, 8)) console.log(`     ${problem}`)
    } catch (error) {
      failed.push(name)
      console.log(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  return { passed, failed }
}

function at(fault: TeamFault | undefined): { fault?: TeamFault } {
  return fault ? { fault } : {}
}
