import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { InstancesReport } from '../../src/domain/instances.ts'
import { compareBoth } from './compare-both.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { Random } from './random.ts'
import { RunningTeam } from './running-team.ts'
import { emptyAll, type Pair } from './scenario.ts'
import { seedData } from './seed-data.ts'
import type { Faults } from './tandem-process.ts'
import { checkHistory } from './team-history.ts'
import { createWorkload } from './workload.ts'

/** What happens to the team. It leaves at least one member running, and nobody stopped or cut off. */
export interface TeamFault {
  name: string
  /** Environment of the first instance, which is alone at first and so coordinates. */
  firstFaults?: Faults
  /** Starts the team otherwise than all by plain connection strings. */
  prepare?: (team: RunningTeam, ids: string[]) => Promise<void>
  during?: (team: RunningTeam) => Promise<void>
  /** From when the commit has been sent. */
  atCommit?: (team: RunningTeam) => Promise<void>
  start?: Record<string, unknown>
  /** Fills the destination before the start. The workload goes on afterwards. */
  seedDestination?: (pair: Pair, seed: number) => Promise<void>
}

export interface TeamScenarioOptions {
  pair: Pair
  seed: number
  instances: number
  fault?: TeamFault
  /** Of the workload before the copy, and at least while the faults happen. */
  steps?: number
  opsPerSecond?: number
  ddl?: boolean
  /** Databases on the source that stay from scenario to scenario: bulk to copy. */
  keep?: string[]
}

export interface TeamScenarioResult {
  /** Differences between the clusters, and everything else that is not as it should be. */
  problems: string[]
  documents: number
  faults: number
  takeovers: number
  slowestTakeoverMS: number
  /** Between the first and the last undisturbed instance that could write. */
  spreadMS: number
}

const spreadMaxMS = 2_000

/**
 * One migration by several instances under a random workload that runs from before the copy until the commit, with
 * faults of instances on top. Ends with both comparisons of the clusters and with what the metadata says of owners.
 */
export async function runTeamScenario(options: TeamScenarioOptions): Promise<TeamScenarioResult> {
  const { pair, seed, instances, fault, steps = 100, ddl = true, opsPerSecond = 20 } = options
  await emptyAll(pair, options.keep ?? [])
  await seedData(pair.source.uri, seed, 0.3)
  const workload = createWorkload({ uri: pair.source.uri, seed, ddl, transactions: true, opsPerSecond })
  await workload.runSteps(20)
  if (fault?.seedDestination) {
    await fault.seedDestination(pair, seed)
    await workload.runSteps(20)
  }
  const body = { source: 'cluster0', destination: 'cluster1', ...fault?.start }
  const done = new AbortController()
  const team = new RunningTeam(pair, new Random(`faults ${seed}`), done.signal, body)
  const written = new AbortController()
  let writing: Promise<void> = Promise.resolve()
  try {
    const [first = 'a', ...others] = ['a', 'b', 'c', 'd', 'e'].slice(0, instances)
    if (fault?.prepare) await fault.prepare(team, [first, ...others])
    else if (fault?.firstFaults) {
      await team.start(first, { faults: fault.firstFaults })
      await team.begin(first)
      await Promise.all(others.map((id) => team.start(id)))
      await team.begin(...others)
    } else {
      await Promise.all([first, ...others].map((id) => team.start(id)))
      await team.begin(first, ...others)
    }
    writing = workload.run(written.signal)
    writing.catch(() => written.abort())
    await fault?.during?.(team)
    team.note('the faults are over')
    while (workload.summary().steps < steps && !written.signal.aborted) await sleep(50)
    await team.allReach('canCommit', (progress) => progress.canCommit, 100)
    written.abort()
    await writing
    team.note(`the workload ended: ${JSON.stringify(workload.summary())}`)

    const problems = await checkCopied(team)
    await team.allReach('canCommit', (progress) => progress.canCommit, 60)
    team.disturbed.clear()
    team.committing = true
    const watching = watchCommit(team)
    watching.catch(() => {})
    await Promise.all(team.ids.map((id) => team.command(id, 'commit')))
    await fault?.atCommit?.(team)
    const { spreadMS, problems: late } = await watching
    problems.push(...late)
    done.abort()
    const history = await checkHistory(pair.destination.uri, team.deaths)
    const { differences, documents } = await compareBoth(pair.source.uri, pair.destination.uri)
    problems.push(...history.problems, ...differences)
    team.note('compared')
    if (problems.length > 0 || process.env['TANDEM_TEAM_OUTPUT']) keepOutput(team, options, problems.join('\n'))
    const { takeovers, slowestTakeoverMS } = history
    return { problems, documents, faults: team.faults, takeovers, slowestTakeoverMS, spreadMS }
  } catch (error) {
    const file = keepOutput(team, options, String(error))
    const message = error instanceof Error ? error.message : String(error)
    throw new Error(`seed ${seed}, ${fault?.name ?? 'no fault'}: ${message}\nwhat the instances said: ${file}`, {
      cause: error,
    })
  } finally {
    done.abort()
    written.abort()
    await writing.catch(() => {})
    await team.stop()
  }
}

/** What all copied adds up to the whole, also after takeovers; with the workload over it stays so. */
async function checkCopied(team: RunningTeam): Promise<string[]> {
  const deadline = Date.now() + 20_000
  for (;;) {
    const reports = await Promise.all(team.ids.map((id) => instancesOf(team, id)))
    const wrong = reports.flatMap(({ instances, totals }, index) => {
      const copies = instances.map(({ mongosyncID, status, progress }) => ({
        mongosyncID,
        status,
        ...progress.collectionCopy,
      }))
      const same = copies.every(
        (copy) => copy.status === 'lost' || copy.estimatedTotalBytes === totals.estimatedTotalBytes,
      )
      if (same && totals.estimatedCopiedBytes === totals.estimatedTotalBytes && totals.percent === 100) return []
      return [`${team.ids[index]} says of the copy: ${JSON.stringify({ ...totals, copies })}`]
    })
    if (wrong.length === 0) return []
    if (Date.now() > deadline) return wrong
    await sleep(100)
  }
}

async function instancesOf(team: RunningTeam, id: string): Promise<InstancesReport> {
  const response = await fetch(`${team.get(id).url}/api/v1/instances`)
  return (await response.json()) as InstancesReport
}

/** All reach the end, and those that nothing happened to within two seconds of each other. */
async function watchCommit(team: RunningTeam): Promise<{ spreadMS: number; problems: string[] }> {
  const [writable, committed] = await Promise.all([
    team.allReach('canWrite', (progress) => progress.canWrite === true, 180),
    team.allReach('COMMITTED', (progress) => progress.state === 'COMMITTED', 180),
  ])
  const problems: string[] = []
  let spreadMS = 0
  for (const [what, reached] of Object.entries({ writable, committed })) {
    const times = [...reached].filter(([id]) => !team.disturbed.has(id)).map(([, at]) => at)
    if (times.length < 2) continue
    const spread = Math.max(...times) - Math.min(...times)
    spreadMS = Math.max(spreadMS, spread)
    if (spread > spreadMaxMS) problems.push(`${what}: ${spread} ms between the first and the last`)
  }
  return { spreadMS, problems }
}

function keepOutput(team: RunningTeam, { seed, instances, fault }: TeamScenarioOptions, what: string): string {
  const folder = path.join(repositoryRoot, '.cache')
  mkdirSync(folder, { recursive: true })
  const file = path.join(folder, `team-${instances}-${fault?.name.replaceAll(/\W+/g, '-') ?? 'quiet'}-${seed}.log`)
  writeFileSync(file, `${what}\n${team.output()}`)
  return path.relative(repositoryRoot, file)
}
