import { clockSteps, lateDelivery, podReplacement, suspension } from '../test/support/fencing-faults.ts'
import { loadBulk } from '../test/support/load-bulk.ts'
import { podsAreAllowed } from '../test/support/pod.ts'
import { Random } from '../test/support/random.ts'
import { startReplicaSet } from '../test/support/replica-set.ts'
import { type SteppedClock, startSteppedClock } from '../test/support/stepped-clock.ts'
import { runTeamScenario, type TeamFault } from '../test/support/team-scenario.ts'

const seconds = (from: number, to: number): [number, number] => [from * 1_000, to * 1_000]
/** One of so many runs takes long: what is late, or away, is so for up to a minute. */
const longEvery = 8

/** Faults by their kind; every seed of a kind takes the next of its variants. */
const kinds: Record<string, (clock: SteppedClock, long: boolean) => TeamFault[]> = {
  late: (_clock, long) => {
    // Connections that hang are given up after half a minute.
    if (long) return [lateDelivery('hanging', { lateMS: seconds(32, 40), rounds: 1, when: 'running' })]
    const lateMS = seconds(5, 9)
    return [
      lateDelivery('cut', { lateMS, rounds: 1, when: 'running' }),
      lateDelivery('cut', { lateMS, rounds: 1, when: 'at commit' }),
      lateDelivery('cut', { lateMS, rounds: 2, when: 'running' }),
    ]
  },
  clock: (clock) => [clockSteps(clock, 1), clockSteps(clock, 2), clockSteps(clock, 3)],
  suspension: (_clock, long) => {
    const awayMS = long ? seconds(20, 60) : seconds(5, 14)
    return [
      suspension('coordinator', 'go on', awayMS),
      suspension('first', 'stand still', awayMS),
      suspension('first', 'go on', awayMS),
      suspension('coordinator', 'stand still', awayMS),
    ]
  },
  replacement: (_clock, long) => {
    const besideMS = long ? seconds(11, 14) : seconds(1, 5)
    return [podReplacement('killed', besideMS), podReplacement('suspended', besideMS)]
  },
}

export const fencingFaultKinds = Object.keys(kinds)

export interface FencingRuns {
  count: number
  /** 0: one and two in turn. */
  instances: number
  kinds: string[]
  from: number
  steps: number
  /** Documents to copy that no fault is about. */
  bulk: number
}

/** Runs one scenario after the other; prints a line for each. Returns the names of those that failed. */
export async function runFencing(runs: FencingRuns): Promise<{ passed: number; failed: string[] }> {
  if (runs.kinds.includes('replacement') && !(await podsAreAllowed())) {
    throw new Error('this system allows no namespaces (unshare): leave `replacement` out of --faults')
  }
  const clock = await startSteppedClock()
  await using source = await startReplicaSet({ oplogSizeMB: 2048 })
  await using destination = await startReplicaSet({ oplogSizeMB: 2048, clock })
  await loadBulk(source.uri, 'bulk', runs.bulk)
  const failed: string[] = []
  let passed = 0
  for (let seed = runs.from; seed < runs.from + runs.count; seed++) {
    const round = Math.floor(seed / runs.kinds.length)
    const variants =
      kinds[runs.kinds[seed % runs.kinds.length] ?? '']?.(clock, round % longEvery === longEvery - 1) ?? []
    const fault = variants[round % variants.length] as TeamFault
    const instances = runs.instances || new Random(`instances ${seed}`).int(1, 2)
    const name = `${instances} instances, ${fault.name}, seed ${seed}`
    const begun = performance.now()
    try {
      const options = { pair: { source, destination }, seed, instances, fault, steps: runs.steps, keep: ['bulk'] }
      const { problems, documents, faults } = await runTeamScenario(options)
      const good = problems.length === 0
      if (good) passed += 1
      else failed.push(name)
      const took = ((performance.now() - begun) / 1_000).toFixed(1)
      console.log(`${good ? 'ok  ' : 'FAIL'} ${name} (${took} s) ${documents} documents, ${faults} faults`)
      for (const problem of problems.slice(0, 8)) console.log(`     ${problem}`)
    } catch (error) {
      failed.push(name)
      console.log(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  clock.close()
  return { passed, failed }
}
