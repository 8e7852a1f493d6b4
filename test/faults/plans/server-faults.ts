import { type Pair, type PairOptions, startPair } from '../clusters.ts'
import type { FaultPlan, PlannedRun, PlanOptions } from '../plan.ts'
import { cuts, type FaultyServers, stepDowns } from '../server-faults.ts'
import { migrateUnderWorkload, workloadOutcome } from '../under-workload.ts'

const oplogSizeMB = 2_048
const bulkDocuments = 60_000
const sides = ['source', 'destination'] as const
type Side = (typeof sides)[number]

/** Steps the primary of either side down, five times per run. With several members, another member becomes primary. */
export function stepDownPlans(options: PlanOptions): FaultPlan<Pair>[] {
  const perRun = 5
  const servers = { members: options.members, oplogSizeMB, bulk: bulkDocuments }
  return sides.map((side) =>
    planOf('stepdown', side, { options, servers, perRun, fault: stepDowns(side, perRun, 800) }),
  )
}

/** Cuts the connections of either side or lets them hang, four times per run. */
export function cutPlans(options: PlanOptions): FaultPlan<Pair>[] {
  const perRun = 4
  const servers = { proxied: true, oplogSizeMB, bulk: bulkDocuments }
  return sides.map((side) => planOf('cut', side, { options, servers, perRun, fault: cuts(side, perRun, 1_000, 3_000) }))
}

/** `count` is the number of faults on each side. */
function planOf(
  what: string,
  side: Side,
  parts: {
    options: PlanOptions
    servers: PairOptions
    perRun: number
    fault: (servers: FaultyServers) => Promise<void>
  },
): FaultPlan<Pair> {
  const { count, from, steps = 120 } = parts.options
  const runs: PlannedRun<Pair>[] = []
  for (let seed = from; (seed - from) * parts.perRun < count; seed++) {
    runs.push({
      name: `${what} of the ${side}, seed ${seed}`,
      perform: async (pair) =>
        workloadOutcome(await migrateUnderWorkload({ pair, seed, steps, serverFaults: parts.fault })),
    })
  }
  return { open: () => startPair(parts.servers), runs }
}
