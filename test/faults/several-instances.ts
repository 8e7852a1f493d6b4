import { setTimeout as sleep } from 'node:timers/promises'
import { both } from '../../src/domain/in-parallel.ts'
import type { InstancesReport } from '../../src/domain/instances.ts'
import { Random } from '../support/random.ts'
import { seedData } from '../support/seed-data.ts'
import type { Faults } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'
import { bulkDatabase, type Pair } from './clusters.ts'
import { type MigrationResult, runMigration } from './migration.ts'
import { checkHistory } from './ownership-history.ts'
import type { RunningInstances } from './running-instances.ts'
import type { FaultyServers } from './server-faults.ts'

/**
 * A fault of instances or of the servers. Afterwards at least one instance runs, none is suspended or disconnected, and
 * the servers can be reached.
 */
export interface InstanceFault {
  name: string
  /**
   * Faults that are injected into the first instance's process. That instance is started alone, so it becomes the
   * coordinator.
   */
  firstFaults?: Faults
  /** Starts the instances, instead of the default start with plain connection strings. */
  prepare?: (instances: RunningInstances, ids: string[]) => Promise<void>
  during?: (instances: RunningInstances) => Promise<void>
  /** Faults of the servers or of their network, at the same time as `during`. */
  servers?: (servers: FaultyServers) => Promise<void>
  /** A fault of the servers or of their network from before the start until all instances have committed, when `over` is aborted. */
  throughout?: (servers: FaultyServers, over: AbortSignal) => Promise<void>
  /** Called after the commit has been sent. */
  atCommit?: (instances: RunningInstances) => Promise<void>
  /** Fields of the body of `start`. */
  start?: Record<string, unknown>
  /** Fills the destination before the start. The workload continues afterwards. */
  seedDestination?: (pair: Pair, seed: number) => Promise<void>
}

export interface SeveralInstancesOptions {
  pair: Pair
  seed: number
  instances: number
  fault?: InstanceFault | undefined
  /** Minimum number of workload steps before the commit. */
  steps?: number
  /** Milliseconds for which the workload continues after the faults and these steps while no commit is possible. */
  writesMS?: number
}

export interface SeveralInstancesResult {
  faults: number
  takeovers: number
  slowestTakeoverMS: number
  /**
   * Milliseconds between the first and the last undisturbed instance to reach `canWrite`, or to reach COMMITTED,
   * whichever is longer.
   */
  spreadMS: number
}

const stepsASecond = 20
const seededShare = 0.3
const stepsBefore = 20
const spreadMaxMS = 2_000

/**
 * Runs one migration with several instances and injects faults. A random workload writes to the source from before the
 * copy until the commit. At the end it checks the history of owners in the metadata and compares the clusters.
 */
export async function migrateBySeveral(
  options: SeveralInstancesOptions,
): Promise<MigrationResult<SeveralInstancesResult>> {
  const { pair, seed, fault, steps = 100 } = options
  const name = `instances-${options.instances}-${fault?.name ?? 'no fault'}-${seed}`
  const random = new Random(`faults ${seed}`)
  const start = fault?.start ?? {}
  return await runMigration({ clusters: pair, name, random, keep: [bulkDatabase], start }, async (migration) => {
    const { instances, problems } = migration
    await seedData(pair.source.uri, seed, seededShare)
    // The workload does not connect through the proxies, so it keeps its connections when tandem's are cut.
    const uri = (pair.source.proxies.length > 0 && pair.source.uris[0]) || pair.source.uri
    const workload = createWorkload({ uri, seed, ddl: true, transactions: true, opsPerSecond: stepsASecond })
    await workload.runSteps(stepsBefore)
    if (fault?.seedDestination) {
      await fault.seedDestination(pair, seed)
      await workload.runSteps(stepsBefore)
    }
    const lasting = Promise.resolve(
      fault?.throughout?.({ ...pair, random: random.fork('throughout'), counts: instances }, instances.signal),
    )
    lasting.catch(() => {})
    // Registered first and called last, when the instances' `end` has aborted the signal.
    migration.atEnd(() => lasting)
    await startAll(instances, ['a', 'b', 'c', 'd', 'e'].slice(0, options.instances), fault)

    const written = new AbortController()
    const writing = workload.run(written.signal)
    writing.catch(() => written.abort())
    migration.atEnd(async () => {
      written.abort()
      await writing
    })
    // If one of the two fails, wait for the other, which must not continue during the next run on the same servers.
    await both(
      Promise.resolve(fault?.during?.(instances)),
      Promise.resolve(fault?.servers?.({ ...pair, random, counts: instances })),
    )
    instances.note('the faults are over')
    while (workload.summary().steps < steps && !written.signal.aborted) await sleep(50)
    await instances.allCanCommit(100, () => written.abort(), options.writesMS)
    written.abort()
    await writing
    instances.note(`the workload ended: ${JSON.stringify(workload.summary())}`)

    problems.push(...(await checkCopied(instances)))
    await instances.allReach('canCommit', (progress) => progress.canCommit, 60)
    instances.disturbed.clear()
    instances.committing = true
    const watching = watchCommit(instances)
    watching.catch(() => {})
    await Promise.all(instances.ids.map((id) => instances.command(id, 'commit')))
    await fault?.atCommit?.(instances)
    const { spreadMS, problems: late } = await watching
    problems.push(...late)
    instances.end()
    await lasting
    const history = await checkHistory(pair.destination.uri, instances.deaths)
    problems.push(...history.problems)
    await migration.compare()
    const { takeovers, slowestTakeoverMS } = history
    return { faults: instances.faults, takeovers, slowestTakeoverMS, spreadMS }
  })
}

async function startAll(instances: RunningInstances, ids: string[], fault: InstanceFault | undefined): Promise<void> {
  const [first = '', ...others] = ids
  if (fault?.prepare) await fault.prepare(instances, ids)
  else if (fault?.firstFaults) {
    await instances.start(first, { faults: fault.firstFaults })
    await instances.begin(first)
    await Promise.all(others.map((id) => instances.start(id)))
    await instances.begin(...others)
  } else {
    await Promise.all(ids.map((id) => instances.start(id)))
    await instances.begin(...ids)
  }
}

/**
 * Checks that the bytes copied by the instances add up to the total, even after takeovers. The workload has ended, so
 * the sums no longer change.
 */
async function checkCopied(instances: RunningInstances): Promise<string[]> {
  const deadline = Date.now() + 20_000
  for (;;) {
    const reports = await Promise.all(instances.ids.map((id) => instancesOf(instances, id)))
    const wrong = reports.flatMap(({ instances: rows, totals }, index) => {
      const copies = rows.map(({ mongosyncID, status, progress }) => ({
        mongosyncID,
        status,
        ...progress.collectionCopy,
      }))
      const same = copies.every(
        (copy) => copy.status === 'lost' || copy.estimatedTotalBytes === totals.estimatedTotalBytes,
      )
      if (same && totals.estimatedCopiedBytes === totals.estimatedTotalBytes && totals.percent === 100) return []
      return [`${instances.ids[index]} reports about the copy: ${JSON.stringify({ ...totals, copies })}`]
    })
    if (wrong.length === 0) return []
    if (Date.now() > deadline) return wrong
    await sleep(100)
  }
}

async function instancesOf(instances: RunningInstances, id: string): Promise<InstancesReport> {
  const response = await fetch(`${instances.get(id).url}/api/v1/instances`)
  return (await response.json()) as InstancesReport
}

/** Checks that all instances commit, and that those without a fault do so within two seconds of each other. */
async function watchCommit(instances: RunningInstances): Promise<{ spreadMS: number; problems: string[] }> {
  const [writable, committed] = await Promise.all([
    instances.allReach('canWrite', (progress) => progress.canWrite === true, 180),
    instances.allReach('COMMITTED', (progress) => progress.state === 'COMMITTED', 180),
  ])
  const problems: string[] = []
  let spreadMS = 0
  for (const [what, reached] of Object.entries({ writable, committed })) {
    const times = [...reached].filter(([id]) => !instances.disturbed.has(id)).map(([, at]) => at)
    if (times.length < 2) continue
    const spread = Math.max(...times) - Math.min(...times)
    spreadMS = Math.max(spreadMS, spread)
    if (spread > spreadMaxMS) problems.push(`${what}: ${spread} ms between the first and the last`)
  }
  return { spreadMS, problems }
}
