import { appendFileSync, writeFileSync } from 'node:fs'
import { Random } from '../../support/random.ts'
import { type Pair, startPair } from '../clusters.ts'
import { chosenFaults, type FaultPlan, type Outcome, type PlannedRun } from '../plan.ts'
import { linkKind, soakFaultKinds } from '../soak-faults.ts'
import { soakLine } from '../soak-line.ts'
import { type CycleReport, SoakRun } from '../soak-run.ts'
import { judgeSoak } from '../soak-verdict.ts'

export interface SoakPlanOptions {
  minutes: number
  seed: string
  instances: number
  members: number
  /** Seconds in which the application writes and faults are injected, for the shortest and the longest cycle. */
  cycleSeconds: readonly number[]
  faults?: string[] | undefined
  /** Rates of the workload, in steps per second. */
  paces?: number[] | undefined
  /** File that receives one JSON record for each cycle. */
  log?: string | undefined
}

const lastSecondsMax = 60

/**
 * Runs one sync back and forth between two replica sets for the given time, under the random workload and faults of all kinds. Both
 * clusters are compared after each direction; at the end, memory, files, sockets and metadata must not have grown.
 */
export function soakPlan(options: SoakPlanOptions): FaultPlan<Pair> {
  const { minutes, seed, instances, members, paces, log } = options
  const [shortest = 60, longest = shortest] = options.cycleSeconds
  if (paces?.some((pace) => !(pace > 0))) throw new Error('--paces takes steps per second, such as 8,25,80')
  if (!(instances >= 2 && instances <= 5)) throw new Error('--instances takes 2 to 5')
  const faults = chosenFaults(soakFaultKinds, options.faults)
  const note = (record: Record<string, unknown>): void => {
    if (log) appendFileSync(log, `${JSON.stringify({ at: new Date().toISOString(), ...record })}\n`)
  }
  const reports: CycleReport[] = []
  let run: SoakRun | null = null

  const cycleOf = (pair: Pair, cycle: { seconds: number; faults: readonly string[] }): Promise<CycleReport> => {
    run ??= new SoakRun({ pair, seed, instances })
    return run.cycle({ ...cycle, ...(paces && { paces }) })
  }

  async function perform(pair: Pair, cycle: { seconds: number; faults: readonly string[] }): Promise<Outcome> {
    try {
      const report = await cycleOf(pair, cycle)
      reports.push(report)
      note({ ...report })
      return { problems: report.problems, summary: `${report.direction}, ${soakLine(report)}` }
    } catch (error) {
      const what = error instanceof Error ? (error.stack ?? error.message) : String(error)
      note({ failure: `cycle ${reports.length + 1}`, what })
      throw new Error(what, { cause: error })
    }
  }

  function* cycles(): Generator<PlannedRun<Pair>> {
    const lengths = new Random(`lengths ${seed}`)
    const end = Date.now() + minutes * 60_000
    for (let number = 1; ; number++) {
      const seconds = lengths.int(shortest, longest)
      const isLast = (end - Date.now()) / 1_000 <= seconds
      const cycle = isLast ? { seconds: Math.min(lastSecondsMax, longest), faults: [] } : { seconds, faults }
      yield { name: `cycle ${number}`, perform: (pair) => perform(pair, cycle) }
      if (isLast) return
    }
  }

  return {
    open: async () => {
      if (log) writeFileSync(log, '')
      note({ ...options, faults })
      return await startPair({ members, oplogSizeMB: 4_096, proxied: true, variableLinks: faults.includes(linkKind) })
    },
    runs: { [Symbol.iterator]: cycles },
    endsWithFirstFailure: true,
    conclude: () => {
      const verdict = judgeSoak(reports)
      note({ verdict })
      return verdict.map(({ name, line, flat }) => ({ name, line, passed: flat }))
    },
    close: async (failures) => {
      const folder = await run?.stop(failures > 0)
      return failures > 0 ? `seed ${seed}; output of the instances: ${folder}` : null
    },
  }
}
