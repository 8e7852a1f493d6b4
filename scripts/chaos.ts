import { parseArgs } from 'node:util'
import { cuts, kills, stepDowns } from '../test/support/faults.ts'
import { loadBulk } from '../test/support/load-bulk.ts'
import { startReplicaSet } from '../test/support/replica-set.ts'
import { type Pair, runScenario, type ScenarioOptions, type ScenarioResult } from '../test/support/scenario.ts'
import { type KillCase, killCases, runVerifierKill } from '../test/support/verifier-kill.ts'
import { runCommitKills } from './chaos-commits.ts'
import { runConvergences } from './chaos-converge.ts'
import { fencingFaultKinds, runFencing } from './chaos-fencing.ts'
import { runFilters } from './chaos-filters.ts'
import { runTeams, teamFaultKinds } from './chaos-teams.ts'

/**
 * Full counts of the fault tests of which `npm test` runs a fixed sample:
 *   npm run chaos -- --seeds 50        random workloads without faults
 *   npm run chaos -- --kills 100       kill -9 at random moments of copy, application and commit
 *   npm run chaos -- --stepdowns 30    on each side; with --members 3 another member takes over
 *   npm run chaos -- --cuts 10         connections cut or hanging, on each side
 *   npm run chaos -- --verifierKills 100   at every phase of the verifier and every step of a commit
 *   npm run chaos -- --commitKills 200 one or two instances at every step and at random moments of commit, abort and
 *                                      rehearsal, while clients write on both clusters
 *   npm run chaos -- --filters 48      filters of every shape (48 of them), with DDL at their edges
 *   npm run chaos -- --teams 100       several instances, of which one is killed, stopped, cut off, joins, leaves or is paused
 *     --instances 2                    default: 2 to 4 by the seed
 *     --faults none,kill,stop,join,cut,coordinator,pause   default: all
 *     --away 60                        seconds that a stopped or cut-off instance is away
 *   npm run chaos -- --converge 100    two instances that converge on a destination with an older copy, with faults of one of them
 *   npm run chaos -- --fencing 200     verification off: late delivery of writes, steps of the destination's clock, a suspended instance,
 *                                      a pod that is replaced while it lives; one or two instances (--instances)
 *     --faults late,clock,suspension,replacement   default: all
 * --from N sets the first seed. A failing seed is printed and replays by `--from N --seeds 1` (or --kills 4, …).
 */
const { values } = parseArgs({
  options: {
    seeds: { type: 'string', default: '0' },
    kills: { type: 'string', default: '0' },
    stepdowns: { type: 'string', default: '0' },
    cuts: { type: 'string', default: '0' },
    verifierKills: { type: 'string', default: '0' },
    commitKills: { type: 'string', default: '0' },
    filters: { type: 'string', default: '0' },
    fencing: { type: 'string', default: '0' },
    converge: { type: 'string', default: '0' },
    teams: { type: 'string', default: '0' },
    instances: { type: 'string', default: '0' },
    faults: { type: 'string', default: 'all' },
    away: { type: 'string', default: '60' },
    bulk: { type: 'string', default: '120000' },
    from: { type: 'string', default: '1' },
    steps: { type: 'string', default: '120' },
    members: { type: 'string', default: '1' },
  },
})
const from = Number(values.from)
const steps = Number(values.steps)
const failed: string[] = []
let passed = 0

if (Number(values.seeds) > 0) {
  await withPair(1, false, async (pair) => {
    for (let seed = from; seed < from + Number(values.seeds); seed++) {
      await report('workload', seed, { pair, seed, steps, start: startOptions(seed) })
    }
  })
}

if (Number(values.kills) > 0) {
  const perRun = 5
  await withPair(1, false, async (pair) => {
    await loadBulk(pair.source.uri, 'bulk', 200_000)
    let left = Number(values.kills)
    for (let seed = from; left > 0; seed++) {
      const here = Math.min(perRun, left)
      left -= here
      const atCommit = seed % 2 === 0 ? 2 : 1
      await report('kill -9', seed, {
        pair,
        seed,
        steps,
        keep: ['bulk'],
        faults: kills(Math.max(0, here - atCommit), 1_500),
        commitFaults: kills(Math.min(here, atCommit), 150),
      })
    }
  })
}

if (Number(values.stepdowns) > 0) {
  const perRun = 5
  for (const side of ['source', 'destination'] as const) {
    await withPair(Number(values.members), false, async (pair) => {
      await loadBulk(pair.source.uri, 'bulk', 60_000)
      for (let seed = from; (seed - from) * perRun < Number(values.stepdowns); seed++) {
        await report(`stepdown of the ${side}`, seed, {
          pair,
          seed,
          steps,
          keep: ['bulk'],
          faults: stepDowns(side, perRun, 800),
        })
      }
    })
  }
}

if (Number(values.cuts) > 0) {
  const perRun = 4
  for (const side of ['source', 'destination'] as const) {
    await withPair(1, true, async (pair) => {
      await loadBulk(pair.source.uri, 'bulk', 60_000)
      for (let seed = from; (seed - from) * perRun < Number(values.cuts); seed++) {
        await report(`cut of the ${side}`, seed, {
          pair,
          seed,
          steps,
          keep: ['bulk'],
          faults: cuts(side, perRun, 1_000, 3_000),
        })
      }
    })
  }
}

if (Number(values.verifierKills) > 0) {
  await withPair(1, false, async (pair) => {
    await loadBulk(pair.source.uri, 'bulk', 120_000)
    for (let seed = from; seed < from + Number(values.verifierKills); seed++) await reportVerifierKill(pair, seed)
  })
}

if (Number(values.commitKills) > 0) {
  await withPair(1, false, async (pair) => {
    const outcome = await runCommitKills(pair, { count: Number(values.commitKills), from })
    passed += outcome.passed
    failed.push(...outcome.failed)
  })
}

if (Number(values.filters) > 0) {
  await withPair(1, false, async (pair) => {
    const outcome = await runFilters(pair, { count: Number(values.filters), from, steps })
    passed += outcome.passed
    failed.push(...outcome.failed)
  })
}

if (Number(values.teams) > 0) {
  await withPair(1, false, async (pair) => {
    await loadBulk(pair.source.uri, 'bulk', Number(values.bulk))
    const outcome = await runTeams(pair, {
      count: Number(values.teams),
      instances: Number(values.instances),
      kinds: values.faults === 'all' ? teamFaultKinds : values.faults.split(','),
      from,
      steps,
      awayMS: Number(values.away) * 1_000,
    })
    passed += outcome.passed
    failed.push(...outcome.failed)
  })
}

if (Number(values.converge) > 0) {
  const awayMS = Number(values.away) * 1_000
  const result = await runConvergences({ count: Number(values.converge), from, steps, awayMS })
  passed += result.passed
  failed.push(...result.failed)
}

if (Number(values.fencing) > 0) {
  const outcome = await runFencing({
    count: Number(values.fencing),
    instances: Number(values.instances),
    kinds: values.faults === 'all' ? fencingFaultKinds : values.faults.split(','),
    from,
    steps: Math.min(steps, 60),
    bulk: Math.min(Number(values.bulk), 20_000),
  })
  passed += outcome.passed
  failed.push(...outcome.failed)
}

console.log(`${passed} passed, ${failed.length} failed`)
for (const name of failed) console.log(`  ${name}`)
process.exit(failed.length > 0 ? 1 : 0)

/** Every other seed without indexes, every third with the source blocked at commit. */
function startOptions(seed: number): Record<string, unknown> {
  return seed % 3 === 0 ? { enableUserWriteBlocking: 'sourceAndDestination' } : {}
}

async function withPair(members: number, proxied: boolean, work: (pair: Pair) => Promise<void>): Promise<void> {
  await using source = await startReplicaSet({ members, oplogSizeMB: 2048, proxied })
  await using destination = await startReplicaSet({ members, oplogSizeMB: 2048, proxied })
  await work({ source, destination })
}

async function report(kind: string, seed: number, options: ScenarioOptions): Promise<void> {
  const begun = performance.now()
  const name = `${kind}, seed ${seed}`
  try {
    const result = await runScenario(options)
    const good = result.equal && result.segmentsReadAgain === 0
    if (good) passed += 1
    else failed.push(name)
    console.log(
      `${good ? 'ok  ' : 'FAIL'} ${name} (${((performance.now() - begun) / 1_000).toFixed(1)} s) ${summary(result)}`,
    )
    for (const difference of result.differences.slice(0, 5)) console.log(`     ${difference}`)
  } catch (error) {
    failed.push(name)
    console.log(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

async function reportVerifierKill(pair: Pair, seed: number): Promise<void> {
  const begun = performance.now()
  const one = killCases[seed % killCases.length] as KillCase
  const name = `kill of the verifier, seed ${seed}: ${one.moment}${one.planted ? ', with a difference planted' : ''}`
  try {
    const { differences, rangesBefore, rangesReadAgain } = await runVerifierKill(pair, seed, one, ['bulk'])
    const good = differences.length === 0 && rangesReadAgain === 0
    if (good) passed += 1
    else failed.push(name)
    const seconds = ((performance.now() - begun) / 1_000).toFixed(1)
    console.log(
      `${good ? 'ok  ' : 'FAIL'} ${name} (${seconds} s) ${rangesReadAgain} of ${rangesBefore} ranges read again`,
    )
    for (const difference of differences.slice(0, 5)) console.log(`     ${difference}`)
  } catch (error) {
    failed.push(name)
    console.log(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`)
  }
}

function summary(result: ScenarioResult): string {
  const parts = [`${result.documents} documents`]
  if (result.kills > 0) {
    parts.push(`${result.kills} kills`, `slowest restart ${(result.slowestRestartMS / 1_000).toFixed(1)} s`)
    parts.push(`${result.segmentsReadAgain} finished segments read again`)
  }
  if (result.faults > 0) parts.push(`${result.faults} faults`)
  return parts.join(', ')
}
