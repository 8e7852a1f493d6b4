import { setTimeout as sleep } from 'node:timers/promises'
import type { Progress } from '../domain/progress.ts'
import { InstanceProcess } from './instance-process.ts'
import { median, percentile } from './measures.ts'
import type { RehearsalCluster } from './rehearsal-cluster.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'
import { Workload } from './workload.ts'

const pollMS = 200
/** A takeover must wait until a lease has expired. The rest of this time is for slow machines. */
const stepTimeoutMS = 300_000
const writers = 2
const writerPauseMS = 20

export interface RehearsalSetup {
  clusters: Record<'source' | 'destination', RehearsalCluster>
  databases: readonly string[]
  minutes: number
  blockWrites: boolean
  seed: number
  signal: AbortSignal
  /** Receives one line for each step. */
  report: (line: string) => void
}

export interface RehearsalResult {
  /** Rate of the copy in bytes per second: the median, and the 10th (`low`) and 90th (`high`) percentile of its samples. */
  copyBytesPerSecond: { median: number; low: number; high: number } | null
  copySeconds: number
  /** Number of steps of the workload, and number of those that the source refused. */
  workload: { steps: number; refused: number }
  eventsApplied: number
  lagSecondsMax: number
  /** Seconds from the SIGKILL of the coordinator until the other instance coordinated. */
  takeoverSeconds: number
  /** The result of the rehearsed commit: how many seconds applications would have to stop writing, and the verdict. */
  dryRun: { outageSeconds: number; verdict: string }
  /** Seconds from `commit` to `canWrite`. */
  cutoverSeconds: number
}

type Answer = { success: boolean; progress?: Progress }

/**
 * Runs one sync of the rehearsal's databases by two instances: the copy under a workload, SIGKILL of the coordinator, a
 * rehearsed commit and a commit. The instances have ended when `run` returns or throws.
 * @throws RehearsalFailure if a step fails or takes too long
 */
export class Rehearsal {
  readonly #setup: RehearsalSetup
  readonly #instances = new Map<string, InstanceProcess>()
  #lagSecondsMax = 0
  #eventsOfKilled = 0

  constructor(setup: RehearsalSetup) {
    this.#setup = setup
  }

  async run(): Promise<RehearsalResult> {
    const { clusters, databases, seed, signal, report, minutes } = this.#setup
    const stopWriting = new AbortController()
    const workloads = Array.from({ length: writers }, (_, writer) => {
      const pauseMS = writerPauseMS
      return new Workload({ client: clusters.source.client, databases, seed: seed + writer, pauseMS })
    })
    let writing: Promise<unknown> = Promise.resolve()
    try {
      await Promise.all(['rehearsal-1', 'rehearsal-2'].map((id) => this.#launch(id)))
      writing = Promise.all(workloads.map((one) => one.run(AbortSignal.any([signal, stopWriting.signal]))))
      // This avoids an unhandled rejection. A failure of the workload is thrown where `writing` is awaited.
      writing.catch(() => {})
      await this.#postAll('start', this.#startBody())
      report('sync started by two instances, while a workload changes documents and definitions')
      const copy = await this.#copied()
      report(`copied in ${copy.copySeconds.toFixed(1)} s`)
      await this.#writeFor(minutes * 30_000)
      const takeoverSeconds = await this.#killCoordinator()
      report(`the other instance took over ${takeoverSeconds.toFixed(1)} s after the coordinator was killed`)
      await this.#writeFor(minutes * 30_000)
      // The source is not blocked, so a write during the commit would make the commit fail.
      stopWriting.abort()
      await writing
      const dryRun = await this.#dryRun()
      report(`rehearsed commit: writes would stop for ${dryRun.outageSeconds.toFixed(2)} s, verdict: ${dryRun.verdict}`)
      const cutoverSeconds = await this.#commit()
      report(`canWrite ${cutoverSeconds.toFixed(2)} s after commit`)
      const eventsApplied = this.#eventsOfKilled + eventsOf(await this.#progressOfAll())
      const steps = workloads.reduce((sum, one) => sum + one.steps.done + one.steps.refused, 0)
      const refused = workloads.reduce((sum, one) => sum + one.steps.refused, 0)
      const lagSecondsMax = this.#lagSecondsMax
      return {
        ...copy,
        workload: { steps, refused },
        eventsApplied,
        lagSecondsMax,
        takeoverSeconds,
        dryRun,
        cutoverSeconds,
      }
    } finally {
      stopWriting.abort()
      await writing.catch(() => {})
      await Promise.all([...this.#instances.values()].map((one) => one.stop()))
    }
  }

  async #launch(id: string): Promise<void> {
    const { clusters, signal } = this.#setup
    const uris = { [clusters.source.name]: clusters.source.uri, [clusters.destination.name]: clusters.destination.uri }
    const instance = new InstanceProcess(id, uris as Record<'cluster0' | 'cluster1', string>)
    this.#instances.set(id, instance)
    await instance.listening(signal)
    await this.#until(`the instance ${id} is connected`, async () => (await instance.get<Answer>('progress')).success)
  }

  #startBody(): object {
    const { clusters, databases, blockWrites } = this.#setup
    return {
      source: clusters.source.name,
      destination: clusters.destination.name,
      includeNamespaces: databases.map((database) => ({ database })),
      // A source older than 6.0 allows only the default, which is destinationOnly.
      ...(clusters.source.major >= 6 && { enableUserWriteBlocking: blockWrites ? 'destinationOnly' : 'none' }),
    }
  }

  async #copied(): Promise<Pick<RehearsalResult, 'copySeconds' | 'copyBytesPerSecond'>> {
    const began = performance.now()
    const rates: number[] = []
    let before = { at: began, bytes: 0 }
    await this.#until('the copy ends', async () => {
      const all = await this.#progressOfAll()
      // Each instance reports only the bytes that it has copied itself.
      const bytes = all.reduce((sum, one) => sum + (one.collectionCopy?.estimatedCopiedBytes ?? 0), 0)
      const at = performance.now()
      if (at - before.at >= 1_000 || (bytes > before.bytes && all.some(isCopied))) {
        if (bytes > before.bytes) rates.push(((bytes - before.bytes) / (at - before.at)) * 1_000)
        before = { at, bytes }
      }
      return all.every(isCopied)
    })
    const rate =
      rates.length === 0 ? null : { median: median(rates), low: percentile(rates, 10), high: percentile(rates, 90) }
    return { copySeconds: (performance.now() - began) / 1_000, copyBytesPerSecond: rate }
  }

  async #writeFor(milliseconds: number): Promise<void> {
    const until = performance.now() + milliseconds
    while (performance.now() < until) {
      for (const { lagTimeSeconds } of await this.#progressOfAll()) {
        this.#lagSecondsMax = Math.max(this.#lagSecondsMax, lagTimeSeconds ?? 0)
      }
      await sleep(Math.min(1_000, Math.max(0, until - performance.now())), undefined, { signal: this.#setup.signal })
    }
  }

  /**
   * Kills the coordinator, waits for its successor, and starts the killed instance again. Returns the seconds until the
   * takeover.
   */
  async #killCoordinator(): Promise<number> {
    const all = await this.#progressOfAll()
    const { coordinatorID = null } = all[0] ?? {}
    this.#eventsOfKilled = eventsOf(all.filter(({ mongosyncID }) => mongosyncID === coordinatorID))
    const coordinator = this.#instances.get(coordinatorID ?? '')
    if (!coordinator) throw new RehearsalFailure('no instance coordinates the sync')
    const killed = performance.now()
    await coordinator.kill()
    this.#instances.delete(coordinator.id)
    await this.#until('another instance coordinates', async () =>
      (await this.#progressOfAll()).some(
        (one) => one.coordinatorID !== coordinatorID && one.coordinatorID === one.mongosyncID,
      ),
    )
    const seconds = (performance.now() - killed) / 1_000
    await this.#launch(coordinator.id)
    return seconds
  }

  async #dryRun(): Promise<RehearsalResult['dryRun']> {
    await this.#until('a commit is possible', async () => (await this.#progressOfAll()).every((one) => one.canCommit))
    await this.#postAll('commit', { dryRun: true })
    let found: Progress['lastRehearsal']
    await this.#until('the rehearsed commit ends', async () => {
      const all = await this.#progressOfAll()
      found = all.find((one) => one.lastRehearsal)?.lastRehearsal
      return found !== undefined && all.every(({ state }) => state === 'RUNNING')
    })
    const { outageSeconds = 0, verdict = '' } = found ?? {}
    return { outageSeconds, verdict }
  }

  async #commit(): Promise<number> {
    await this.#until('a commit is possible', async () => (await this.#progressOfAll()).every((one) => one.canCommit))
    const began = performance.now()
    await this.#postAll('commit')
    await this.#until('canWrite', async () => (await this.#progressOfAll()).every((one) => one.canWrite === true))
    const seconds = (performance.now() - began) / 1_000
    await this.#until('COMMITTED', async () =>
      (await this.#progressOfAll()).every(({ state }) => state === 'COMMITTED'),
    )
    return seconds
  }

  async #postAll(command: string, body: object = {}): Promise<void> {
    await Promise.all([...this.#instances.values()].map((one) => one.post(command, body)))
  }

  /** Returns the progress of all connected instances. @throws RehearsalFailure if the sync has failed */
  async #progressOfAll(): Promise<Progress[]> {
    const answers = await Promise.all([...this.#instances.values()].map((one) => one.get<Answer>('progress')))
    const all = answers.flatMap(({ progress }) => (progress ? [progress] : []))
    const failed = all.find(({ state }) => state === 'FAILED')
    if (!failed) return all
    const { error, errorDescription } = failed.failure ?? {}
    throw new RehearsalFailure(`the sync failed: ${error}: ${errorDescription}`)
  }

  /** Runs `run`. Throws RehearsalFailure if an instance has ended, instead of the error of a request to that instance. */
  async #unlessEnded<T>(run: () => Promise<T>): Promise<T> {
    const [result] = await Promise.allSettled([run()])
    for (const one of this.#instances.values()) {
      if (!one.isRunning) throw new RehearsalFailure(`the instance ${one.id} has ended:\n${one.lastLines}`)
    }
    if (result.status === 'rejected') throw result.reason
    return result.value
  }

  async #until(what: string, holds: () => Promise<boolean>): Promise<void> {
    const deadline = performance.now() + stepTimeoutMS
    while (!(await this.#unlessEnded(holds))) {
      if (performance.now() > deadline) throw new RehearsalFailure(`waited ${stepTimeoutMS / 1_000} s for: ${what}`)
      await sleep(pollMS, undefined, { signal: this.#setup.signal })
    }
  }
}

const eventsOf = (all: readonly Progress[]): number =>
  all.reduce((sum, { totalEventsApplied }) => sum + (totalEventsApplied ?? 0), 0)

const isCopied = ({ info }: Progress): boolean => info === 'change event application'
