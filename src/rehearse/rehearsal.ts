import { setTimeout as sleep } from 'node:timers/promises'
import type { Progress } from '../domain/progress.ts'
import { median, percentile } from './measures.ts'
import type { RehearsalCluster } from './rehearsal-cluster.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'
import { RehearsalInstances } from './rehearsal-instances.ts'
import type { RehearsalResult, ReverseResult } from './rehearsal-result.ts'
import type { StepDowns } from './step-downs.ts'
import { Writers } from './writers.ts'

/** Distance of the seeds of the two directions. Each direction uses one seed for each of its workloads. */
const reverseSeedOffset = 1_000

export interface RehearsalSetup {
  clusters: Record<'source' | 'destination', RehearsalCluster>
  databases: readonly string[]
  /** The ids of the instances. */
  instances: readonly string[]
  minutes: number
  blockWrites: boolean
  /** Starts a reversible sync, which has no filter. */
  reverse: boolean
  /** Null if no primary is to step down. */
  stepDowns: StepDowns | null
  seed: number
  signal: AbortSignal
  /** Sends `start` by calling its argument. */
  starting: (start: () => Promise<void>) => Promise<void>
  /** Receives one line for each step. */
  report: (line: string) => void
}

/**
 * One sync of the rehearsal's databases by two instances. The phases are called in this order: `sync`, `reverse` if it is
 * to be rehearsed, and always `stop`.
 */
export class Rehearsal {
  readonly #setup: RehearsalSetup
  readonly #instances: RehearsalInstances
  #writers: Writers | null = null
  /** Aborted when the rehearsal ends, also because a step has failed. */
  readonly #ending = new AbortController()
  /** Aborted when the rehearsal ends or is interrupted. */
  readonly #signal: AbortSignal
  /** The elections, with the wait before them. */
  #electing: Promise<void> = Promise.resolve()
  #lagSecondsMax = 0
  #eventsOfKilled = 0

  constructor(setup: RehearsalSetup) {
    this.#setup = setup
    this.#signal = AbortSignal.any([setup.signal, this.#ending.signal])
    const { source, destination } = setup.clusters
    const uris = { [source.name]: source.uri, [destination.name]: destination.uri }
    this.#instances = new RehearsalInstances(uris as Record<'cluster0' | 'cluster1', string>, this.#signal)
  }

  /**
   * The copy under a workload, SIGKILL of the coordinator, a rehearsed commit and a commit.
   * @throws RehearsalFailure if a step fails or takes too long
   */
  async sync(): Promise<RehearsalResult> {
    const { report, minutes, seed } = this.#setup
    await Promise.all(this.#setup.instances.map((id) => this.#instances.launch(id)))
    const writers = this.#write('source', seed)
    await this.#setup.starting(() => this.#instances.command('start', this.#startBody()))
    report('sync started by two instances, while a workload changes documents and definitions')
    this.#electing = this.#electionsOfCopy()
    const [copy] = await Promise.all([this.#copied(), this.#electing])
    report(`copied in ${copy.copySeconds.toFixed(1)} s`)
    this.#electing = this.#elections()
    await Promise.all([this.#follow(minutes * 30_000), this.#electing])
    const takeoverSeconds = await this.#killCoordinator()
    report(`the other instance took over ${takeoverSeconds.toFixed(1)} s after the coordinator was killed`)
    await this.#follow(minutes * 30_000)
    // The source may not be blocked, so a write during the commit would make the commit fail.
    await writers.stop()
    const dryRun = await this.#dryRun()
    report(`rehearsed commit: writes would stop for ${dryRun.outageSeconds.toFixed(2)} s, verdict: ${dryRun.verdict}`)
    const cutoverSeconds = await this.#commit()
    report(`canWrite ${cutoverSeconds.toFixed(2)} s after commit`)
    return {
      ...copy,
      workload: writers.steps,
      eventsApplied: this.#eventsOfKilled + eventsOf(await this.#instances.progress()),
      lagSecondsMax: this.#lagSecondsMax,
      takeoverSeconds,
      dryRun,
      cutoverSeconds,
    }
  }

  /**
   * `reverse` after `sync`: a workload writes to the new source before the reversal and after it, and a second commit
   * makes the first cluster writable again.
   * @throws RehearsalFailure if a step fails or takes too long
   */
  async reverse(): Promise<ReverseResult> {
    const { clusters, report, minutes, seed } = this.#setup
    const formerSourceBlocked = await clusters.source.isBlocked()
    if (formerSourceBlocked === false) {
      throw new RehearsalFailure(
        `${clusters.source.name} accepts user writes after the commit, which should block them`,
      )
    }
    const writers = this.#write('destination', seed + reverseSeedOffset)
    await this.#follow(minutes * 15_000)
    this.#lagSecondsMax = 0
    const began = performance.now()
    await this.#instances.command('reverse')
    await this.#instances.untilEvery(
      'changes are applied in the other direction',
      (one) => one.state === 'RUNNING' && isCopied(one),
    )
    const reverseSeconds = (performance.now() - began) / 1_000
    report(`reversed in ${reverseSeconds.toFixed(2)} s, while the workload writes to ${clusters.destination.name}`)
    await this.#follow(minutes * 15_000)
    await writers.stop()
    const cutoverSeconds = await this.#commit()
    report(`canWrite ${cutoverSeconds.toFixed(2)} s after the commit of the reversed sync`)
    const eventsApplied = eventsOf(await this.#instances.progress())
    const lagSecondsMax = this.#lagSecondsMax
    return {
      formerSourceBlocked,
      reverseSeconds,
      workload: writers.steps,
      eventsApplied,
      lagSecondsMax,
      cutoverSeconds,
    }
  }

  /** Ends the workload and the instances, and waits until a set that elects a primary has one. */
  async stop(): Promise<void> {
    // No primary steps down after this.
    this.#ending.abort()
    await this.#writers?.stop().catch(() => {})
    await this.#electing.catch(() => {})
    await this.#instances.stop()
  }

  #write(side: 'source' | 'destination', seed: number): Writers {
    const { clusters, databases } = this.#setup
    this.#writers = new Writers({ client: clusters[side].client, databases, seed }, this.#signal)
    return this.#writers
  }

  #startBody(): object {
    const { clusters, databases, blockWrites, reverse } = this.#setup
    const direction = { source: clusters.source.name, destination: clusters.destination.name }
    // A reversible sync allows no filter.
    if (reverse) return { ...direction, reversible: true, enableUserWriteBlocking: 'sourceAndDestination' }
    return {
      ...direction,
      includeNamespaces: databases.map((database) => ({ database })),
      // A source older than 6.0 allows only the default, which is destinationOnly.
      ...(clusters.source.major >= 6 && { enableUserWriteBlocking: blockWrites ? 'destinationOnly' : 'none' }),
    }
  }

  async #copied(): Promise<Pick<RehearsalResult, 'copySeconds' | 'copyBytesPerSecond'>> {
    const began = performance.now()
    const rates: number[] = []
    let before = { at: began, bytes: 0 }
    await this.#instances.untilEvery('the copy ends', isCopied, (all) => {
      // Each instance reports only the bytes that it has copied itself.
      const bytes = all.reduce((sum, one) => sum + (one.collectionCopy?.estimatedCopiedBytes ?? 0), 0)
      const at = performance.now()
      if (at - before.at >= 1_000 || (bytes > before.bytes && all.some(isCopied))) {
        if (bytes > before.bytes) rates.push(((bytes - before.bytes) / (at - before.at)) * 1_000)
        before = { at, bytes }
      }
    })
    const rate =
      rates.length === 0 ? null : { median: median(rates), low: percentile(rates, 10), high: percentile(rates, 90) }
    return { copySeconds: (performance.now() - began) / 1_000, copyBytesPerSecond: rate }
  }

  /** Lets primaries step down as soon as the copy has begun. */
  async #electionsOfCopy(): Promise<void> {
    if (this.#setup.stepDowns === null) return
    const hasBegun = async (): Promise<boolean> => (await this.#instances.progress()).some(({ info }) => info !== null)
    await this.#instances.until('the copy begins', hasBegun)
    await this.#elections()
  }

  /** Lets the primary of each set step down, if the rehearsal has that option. */
  async #elections(): Promise<void> {
    const { stepDowns, report } = this.#setup
    if (stepDowns === null) return
    const phase = async () => ((await this.#instances.every(isCopied)) ? 'following' : 'copy')
    await stepDowns.round(phase, this.#signal, report)
  }

  /** Lets the workload go on, and measures the lag. */
  async #follow(milliseconds: number): Promise<void> {
    const until = performance.now() + milliseconds
    while (performance.now() < until) {
      for (const { lagTimeSeconds } of await this.#instances.progress()) {
        this.#lagSecondsMax = Math.max(this.#lagSecondsMax, lagTimeSeconds ?? 0)
      }
      await sleep(Math.min(1_000, Math.max(0, until - performance.now())), undefined, { signal: this.#signal })
    }
  }

  /**
   * Kills the coordinator, waits for its successor, and starts the killed instance again. Returns the seconds until the
   * takeover.
   */
  async #killCoordinator(): Promise<number> {
    const all = await this.#instances.progress()
    const { coordinatorID = null } = all[0] ?? {}
    if (coordinatorID === null || !this.#setup.instances.includes(coordinatorID)) {
      throw new RehearsalFailure('no instance coordinates the sync')
    }
    this.#eventsOfKilled = eventsOf(all.filter(({ mongosyncID }) => mongosyncID === coordinatorID))
    const killed = performance.now()
    await this.#instances.kill(coordinatorID)
    await this.#instances.untilEvery(
      'another instance coordinates',
      (one) => one.coordinatorID !== coordinatorID && one.coordinatorID === one.mongosyncID,
    )
    const seconds = (performance.now() - killed) / 1_000
    await this.#instances.launch(coordinatorID)
    return seconds
  }

  async #dryRun(): Promise<RehearsalResult['dryRun']> {
    await this.#untilCanCommit()
    await this.#instances.command('commit', { dryRun: true })
    let found: Progress['lastRehearsal']
    await this.#instances.untilEvery(
      'the rehearsed commit ends',
      ({ state }) => found !== undefined && state === 'RUNNING',
      (all) => {
        found = all.find((one) => one.lastRehearsal)?.lastRehearsal
      },
    )
    const { outageSeconds = 0, verdict = '' } = found ?? {}
    return { outageSeconds, verdict }
  }

  async #commit(): Promise<number> {
    await this.#untilCanCommit()
    const began = performance.now()
    await this.#instances.command('commit')
    await this.#instances.untilEvery('canWrite', (one) => one.canWrite === true)
    const seconds = (performance.now() - began) / 1_000
    await this.#instances.untilEvery('COMMITTED', ({ state }) => state === 'COMMITTED')
    return seconds
  }

  async #untilCanCommit(): Promise<void> {
    await this.#instances.untilEvery('a commit is possible', (one) => one.canCommit)
  }
}

const eventsOf = (all: readonly Progress[]): number =>
  all.reduce((sum, { totalEventsApplied }) => sum + (totalEventsApplied ?? 0), 0)

const isCopied = ({ info }: Progress): boolean => info === 'change event application'
