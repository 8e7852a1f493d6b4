import { parseArgs } from 'node:util'
import type { FaultPlan, PlanOptions } from '../test/faults/plan.ts'
import { commitKillsPlan } from '../test/faults/plans/commit-kills.ts'
import { convergePlan } from '../test/faults/plans/converge.ts'
import { corruptionPlan } from '../test/faults/plans/corruptions.ts'
import { fencingPlan } from '../test/faults/plans/fencing.ts'
import { filterPlan } from '../test/faults/plans/filters.ts'
import { instancesPlan } from '../test/faults/plans/instances.ts'
import { killPlan } from '../test/faults/plans/kills.ts'
import { linksPlan } from '../test/faults/plans/links.ts'
import { cutPlans, stepDownPlans } from '../test/faults/plans/server-faults.ts'
import { shardedPlan } from '../test/faults/plans/sharded.ts'
import { soakPlan } from '../test/faults/plans/soak.ts'
import { verifierKillPlan } from '../test/faults/plans/verifier-kills.ts'
import { workloadPlan } from '../test/faults/plans/workload.ts'
import { listPlan, runPlan, type Tally } from '../test/faults/runner.ts'

/**
 * Runs fault plans in full; the tests run a fixed sample of them. These plans run if their flag is set. Its
 * number counts runs; for kills, step-downs and cuts it counts these faults:
 *   npm run chaos -- --seeds 50            random workloads without faults
 *   npm run chaos -- --kills 100           kill -9 at random moments of copy, event application and commit
 *   npm run chaos -- --stepdowns 30        step-downs on each side; with --members 3 another member takes over
 *   npm run chaos -- --cuts 10             connections that break or hang, on each side
 *   npm run chaos -- --verifierKills 100   kill -9 in every phase of the verifier and at every step of a commit
 *   npm run chaos -- --commitKills 200     kill -9 at every step and at random moments of commit, abort and rehearsal
 *   npm run chaos -- --filters 48          filters of all 48 shapes, with DDL on namespaces at their boundaries
 *   npm run chaos -- --instanceFaults 100  several instances, of which one has a fault (--instances, --faults;
 *     --away SECONDS sets how long it is stopped or cut off)
 *   npm run chaos -- --fencing 200         delayed writes, clock steps, suspensions, replaced pods (--instances, --faults)
 *   npm run chaos -- --converge 100        two instances that update an older copy, with faults of one instance, elections and cuts
 *   npm run chaos -- --links 50            two instances, while round trip and bandwidth of the links change until they have committed
 * These plans run if they are named:
 *   npm run chaos:sharded -- --seeds 30 [--instances 2] [--shards 2] [--destinationShards 2] [--routers 2]
 *     [--faults shards,config,routers]
 *   npm run mutations -- [--phases hashing,applying] [--only lost] [--from 20]
 *   npm run soak -- --minutes 90 [--seed 1] [--instances 2] [--members 1] [--cycles 60-300] [--faults kill,stop]
 *     [--paces 8,25,80] [--log soak.jsonl]
 * --from N sets the first seed. The line of a failed run contains its seed. To replay the run, pass that seed to --from and
 * request one run (--seeds 1; but --kills 5, --stepdowns 5 or --cuts 4, because each run has that many of these faults). A soak
 * takes its seed from --seed. --list prints the names of the runs without running them.
 */
const text = { type: 'string' } as const
const { values, positionals } = parseArgs({
  allowPositionals: true,
  options: {
    ...{ seeds: text, kills: text, stepdowns: text, cuts: text, verifierKills: text, commitKills: text },
    ...{ filters: text, instanceFaults: text, fencing: text, converge: text, links: text },
    ...{ from: text, steps: text, instances: text, faults: text, away: text, bulk: text, members: text },
    ...{ shards: text, destinationShards: text, routers: text, phases: text, only: text },
    ...{ minutes: text, seed: text, cycles: text, paces: text, log: text },
    list: { type: 'boolean' },
  },
})

type Flag = keyof typeof values

function number(flag: Flag): number | undefined {
  const value = values[flag]
  if (value === undefined) return undefined
  const parsed = Number(value)
  if (!Number.isFinite(parsed)) throw new Error(`--${flag} takes a number, not ${value}`)
  return parsed
}

function list(flag: Flag): string[] | undefined {
  const value = values[flag]
  return typeof value === 'string' && value !== 'all' ? value.split(',') : undefined
}

function options(count: Flag, defaultCount = 0): PlanOptions {
  return {
    count: number(count) ?? defaultCount,
    from: number('from') ?? 1,
    steps: number('steps'),
    instances: number('instances'),
    faults: list('faults'),
    awayMS: (number('away') ?? 60) * 1_000,
    bulk: number('bulk'),
    members: number('members') ?? 1,
  }
}

const byCount: [Flag, (options: PlanOptions) => FaultPlan[]][] = [
  ['seeds', (all) => [workloadPlan(all)]],
  ['kills', (all) => [killPlan(all)]],
  ['stepdowns', stepDownPlans],
  ['cuts', cutPlans],
  ['verifierKills', (all) => [verifierKillPlan(all)]],
  ['commitKills', (all) => [commitKillsPlan(all)]],
  ['filters', (all) => [filterPlan(all)]],
  ['instanceFaults', (all) => [instancesPlan(all)]],
  ['fencing', (all) => [fencingPlan(all)]],
  ['converge', (all) => [convergePlan(all)]],
  ['links', (all) => [linksPlan(all)]],
]

const byName: Record<string, () => FaultPlan> = {
  sharded: () =>
    shardedPlan({
      ...options('seeds', 30),
      shards: number('shards') ?? 2,
      destinationShards: number('destinationShards') ?? 2,
      routers: number('routers') ?? 1,
    }),
  mutations: () => corruptionPlan({ phases: list('phases'), only: values.only ?? '', from: number('from') ?? 1 }),
  soak: () =>
    soakPlan({
      minutes: number('minutes') ?? 5,
      seed: values.seed ?? '1',
      instances: number('instances') ?? 2,
      members: number('members') ?? 1,
      cycleSeconds: (values.cycles ?? '60-300').split('-').map(Number),
      faults: list('faults'),
      paces: list('paces')?.map(Number),
      log: values.log,
    }),
}

const [name] = positionals
const named = name === undefined ? null : byName[name]
if (named === undefined)
  throw new Error(`there is no plan named ${name}; the plans are ${Object.keys(byName).join(', ')}`)
const plans = named ? [named()] : byCount.flatMap(([flag, plan]) => (number(flag) ? plan(options(flag)) : []))

if (values.list) {
  for (const plan of plans) for (const run of listPlan(plan)) console.log(run)
} else {
  const tally: Tally = { passed: 0, failed: [], kinds: new Map() }
  for (const plan of plans) {
    await runPlan(plan, tally).catch((error) => {
      console.log(`FAIL starting or stopping a plan's clusters: ${error instanceof Error ? error.message : error}`)
      tally.failed.push('starting or stopping the clusters of a plan')
    })
  }
  for (const [kind, count] of tally.kinds) console.log(`${count} ${kind}`)
  for (const failure of tally.failed) console.log(`  ${failure}`)
  console.log(`${tally.passed} passed, ${tally.failed.length} failed`)
  process.exit(tally.failed.length > 0 ? 1 : 0)
}
