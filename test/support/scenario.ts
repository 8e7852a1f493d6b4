import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { compareBoth } from './compare-both.ts'
import { Random } from './random.ts'
import type { ReplicaSet } from './replica-set.ts'
import { seedData } from './seed-data.ts'
import { countSegments, type SegmentCounts } from './segment-counts.ts'
import { startSync, startTandem, type Tandem } from './tandem-process.ts'
import { createWorkload } from './workload.ts'

export interface Pair {
  source: ReplicaSet
  destination: ReplicaSet
}

export interface ScenarioOptions {
  pair: Pair
  seed: number
  /** Steps of the workload before the copy, during copy and application, and after canCommit. */
  steps?: number
  ddl?: boolean
  /** Documents of 15.9 MB now and then. */
  huge?: boolean
  /** Databases on the source that stay from scenario to scenario: bulk to copy. */
  keep?: string[]
  start?: Record<string, unknown>
  /** Environment of the tandem process that runs at the time of the commit. */
  faults?: (run: RunningScenario) => Promise<void>
  /** Faults while the commit is under way; must leave a tandem running. */
  commitFaults?: (run: RunningScenario) => Promise<void>
}

export interface RunningScenario extends Pair {
  random: Random
  tandem: () => Tandem
  /** Kills the instance as by kill -9 and starts it again. */
  killAndRestart: () => Promise<void>
  /** Aborted when canCommit is reached and the last steps of the workload are done. */
  signal: AbortSignal
  counts: { kills: number; faults: number; slowestRestartMS: number }
}

export interface ScenarioResult {
  equal: boolean
  differences: string[]
  documents: number
  kills: number
  faults: number
  slowestRestartMS: number
  /** Segments that were stored as done before a kill and were read again after it: always 0. */
  segmentsReadAgain: number
}

/**
 * One migration under a random workload that runs from before the copy until the commit, with faults on top; ends with
 * the independent comparisons of both clusters. Everything random comes from the seed.
 */
export async function runScenario(options: ScenarioOptions): Promise<ScenarioResult> {
  const { pair, seed, steps = 120, ddl = true, huge = false } = options
  await emptyAll(pair, options.keep ?? [])
  await seedData(pair.source.uri, seed, 0.3)
  // The application is not cut off when tandem is.
  const writerUri = pair.source.proxies.length > 0 ? pair.source.uris[0] : pair.source.uri
  const workload = createWorkload({ uri: writerUri ?? pair.source.uri, seed, ddl, huge, transactions: true })
  await workload.runSteps(20)

  const clusters = { cluster0: pair.source.uri, cluster1: pair.destination.uri }
  let tandem = await startTandem(clusters)
  const done = new AbortController()
  const doneBefore: SegmentCounts[] = []
  const run: RunningScenario = {
    ...pair,
    random: new Random(`faults ${seed}`),
    tandem: () => tandem,
    signal: done.signal,
    counts: { kills: 0, faults: 0, slowestRestartMS: 0 },
    killAndRestart: async () => {
      await tandem.kill9()
      doneBefore.push(await countSegments(pair.destination.uri))
      const from = performance.now()
      tandem = await startTandem(clusters)
      await tandem.waitFor((progress) => progress.state !== 'IDLE', {
        timeoutSeconds: 30,
        what: 'continuing by itself',
      })
      run.counts.kills += 1
      run.counts.slowestRestartMS = Math.max(run.counts.slowestRestartMS, performance.now() - from)
    },
  }
  try {
    await startSync(tandem, { verification: { enabled: true }, ...options.start })
    const writing = workload.runSteps(steps)
    const faults = options.faults?.(run) ?? Promise.resolve()
    writing.catch(() => {})
    faults.catch(() => {})
    await writing
    await untilState(
      () => tandem,
      (progress) => progress.canCommit,
      faults,
    )
    await workload.runSteps(Math.ceil(steps / 3))
    done.abort()
    await faults
    await commit(() => tandem)
    await options.commitFaults?.(run)
    await tandem.waitFor((progress) => progress.state === 'COMMITTED', { timeoutSeconds: 120, what: 'COMMITTED' })
    const segmentsReadAgain = await countReadAgain(pair.destination.uri, doneBefore)
    const compared = await compareBoth(pair.source.uri, pair.destination.uri)
    const { equal, differences, documents } = compared
    return { equal, differences, documents, segmentsReadAgain, ...run.counts }
  } catch (error) {
    throw new Error(`seed ${seed}: ${error instanceof Error ? error.message : String(error)}\n${tandem.output()}`, {
      cause: error,
    })
  } finally {
    done.abort()
    await tandem.stop()
  }
}

/** Waits over restarts: the tandem asked is whichever runs now. A fault that fails ends the wait. */
async function untilState(
  tandem: () => Tandem,
  predicate: Parameters<Tandem['waitFor']>[0],
  faults: Promise<void>,
): Promise<void> {
  const deadline = Date.now() + 180_000
  let faultError: unknown = null
  faults.catch((error) => {
    faultError = error
  })
  while (Date.now() < deadline) {
    if (faultError) throw faultError
    const progress = await tandem()
      .progress()
      .catch(() => null)
    if (progress?.state === 'FAILED') throw new Error(`FAILED: ${JSON.stringify(progress.failure)}`)
    if (progress && predicate(progress)) return
    await sleep(30)
  }
  throw new Error(`not there after 180 s: ${JSON.stringify(await tandem().progress())}`)
}

async function commit(tandem: () => Tandem): Promise<void> {
  await untilState(tandem, (progress) => progress.canCommit, Promise.resolve())
  const answer = await tandem().post('commit')
  if (answer.status !== 200) throw new Error(`commit answered ${answer.status} ${JSON.stringify(answer.body)}`)
}

async function countReadAgain(uri: string, before: SegmentCounts[]): Promise<number> {
  const now = await countSegments(uri)
  const again = new Set<string>()
  for (const counts of before) {
    for (const [id, { done, attempts }] of counts) {
      const later = now.get(id)
      if (done && later && later.attempts > attempts) again.add(id)
    }
  }
  return again.size
}

/** Empties both clusters but for what is kept on the source, and lifts write blocks. */
export async function emptyAll({ source, destination }: Pair, keep: string[]): Promise<void> {
  for (const [uri, kept] of [
    [source.uri, keep],
    [destination.uri, []],
  ] as const) {
    await using client = await MongoClient.connect(uri)
    await client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
    const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
    for (const { name } of databases) {
      if (!['admin', 'local', 'config', ...kept].includes(name)) await client.db(name).dropDatabase()
    }
  }
}
