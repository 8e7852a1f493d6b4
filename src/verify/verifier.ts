import { setTimeout as sleep } from 'node:timers/promises'
import type { Catalog } from '../domain/catalog.ts'
import { type ClusterTime, secondsOf } from '../domain/cluster-time.ts'
import type { InitialCompareMethod } from '../domain/compare-method.ts'
import { deferred } from '../domain/deferred.ts'
import { StoppedError } from '../domain/errors.ts'
import type { RecheckResult } from '../domain/mismatch.ts'
import type { Progress, VerificationSide } from '../domain/progress.ts'
import type { StreamPosition } from '../mongo/change-stream.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { SharedStream } from '../mongo/shared-stream.ts'
import type { VerificationStore, VerifiedRange } from '../mongo/verification-store.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { catchUp } from './catch-up.ts'
import { Checkpoint } from './checkpoint.ts'
import { type ComparisonParts, RecheckComparison } from './compare-rechecks.ts'
import { DocumentCounts } from './count-documents.ts'
import { DestinationEcho } from './destination-echo.ts'
import { Follower } from './follow-changes.ts'
import { type Helpers, OfferedRanges } from './offered-ranges.ts'
import { type ReadAhead, readAhead } from './read-ahead.ts'
import { Rechecks, type Side } from './rechecks.ts'
import { reportOf } from './report.ts'
import { type RevisitParts, revisitStored } from './revisit-stored.ts'
import { Scan } from './scan.ts'
import { compareEverything, explainAll } from './verdict.ts'

export interface VerifierParts {
  clusters: BothClusters
  store: VerificationStore
  metadata: Metadata
  context: RetryContext
  selection: Selection
  /** The batches that event application reads from the source, available while this instance applies all partitions. */
  sharedStream: SharedStream
  throttle: Throttle
  /** Round trip to the slower cluster, ms. */
  roundTripMS: () => number
  compareMethod: InitialCompareMethod
  epoch: number
  catalog: () => Catalog
  /** Everything up to this time is applied on the destination. */
  appliedTime: () => ClusterTime
  /** The other instances, which may compare ranges of the first pass; null if this instance compares all of them. */
  helpers: Helpers | null
  /** Called for each range that this instance has compared itself. */
  onCompared?: (range: VerifiedRange) => void
  /** Called when everything has been compared once. */
  onInitiallyVerified: () => void
}

const sides = ['source', 'destination'] as const

/** Number of comparisons per second, measured on two cores that also ran both servers. */
const comparedPerSecond = 40_000
/** Maximum number of rechecks that one call compares. Other exclusive work runs between calls. */
const comparedPerCallMax = 4_000
/** With fewer rechecks than this, the verifier waits `gatherMS` for more: small comparisons cost more per document. */
const backlogCount = 4_000
const gatherMS = 400
/** Pause (ms) while many rechecks are open but few are due, because event application must catch up first. */
const backlogMS = 100
const checkpointMS = 1_000
const idleScanMS = 500
/** While event application is further behind than this, stored rechecks are not read and no ranges are offered. */
const behindSeconds = 5
/**
 * While event application is further behind than this, comparisons wait and leave it the servers' capacity, unless
 * `deferredCount` rechecks are open. Fewer rechecks take little time to compare later.
 */
const burstLagSeconds = 0
const deferredCount = 20_000
const shortPauseMS = 20
/** Number of additional comparisons, `verdictPauseMS` apart, before a difference counts as proven. */
const verdictPasses = 4
const verdictPauseMS = 150

/**
 * Proves that both clusters are equal, in parallel with event application and without relying on it.
 *
 *   scan ──────────────▶ suspects ─┐
 *   source stream ─────▶ changed ──┼─▶ rechecks ─▶ compare both documents ─▶ resolved, or again
 *   destination stream ▶ changed ──┘
 *
 * A document is proven equal if a comparison after its last change on either side found it equal. A difference proves
 * nothing while changes are in flight. Only `issueVerdict` decides, when the source is quiet and all changes are
 * applied. Scanned ranges, open rechecks and stream positions are stored, so a restart continues. Memory is bounded by
 * the number of open rechecks.
 */
export class Verifier {
  readonly #parts: VerifierParts
  readonly #stop = new AbortController()
  readonly #context: RetryContext
  readonly #rechecks = new Rechecks()
  readonly #comparisonParts: ComparisonParts
  readonly #comparison: RecheckComparison
  readonly #checkpoint: Checkpoint
  readonly #echo = new DestinationEcho()
  readonly #followers = new Map<Side, Follower>()
  #scan: Scan | null = null
  #scanned = false
  readonly #counts: DocumentCounts
  readonly #ended = deferred<void>()
  #busy: Promise<unknown> = Promise.resolve()
  #failure: unknown = null

  constructor(parts: VerifierParts) {
    this.#parts = parts
    const signal = AbortSignal.any([parts.context.signal, this.#stop.signal])
    this.#context = { ...parts.context, signal }
    this.#comparisonParts = {
      clusters: parts.clusters,
      context: this.#context,
      catalog: parts.catalog,
      rechecks: this.#rechecks,
      knownTime: () => this.#knownTime('source'),
    }
    this.#counts = new DocumentCounts(parts.clusters, parts.catalog)
    this.#comparison = new RecheckComparison(this.#comparisonParts)
    this.#checkpoint = new Checkpoint({ ...parts, rechecks: this.#rechecks })
  }

  /** The content of `progress.verification`. */
  get report(): NonNullable<Progress['verification']> {
    const side = (name: Side): VerificationSide =>
      reportOf({
        documents: this.#counts.latest[name],
        read: this.#scan?.documents[name] ?? 0,
        latest: this.#parts.clusters[name].latest,
        known: this.#knownTime(name),
        collections: this.#scan?.collections ?? null,
        cataloged: this.#parts.catalog().entries().length,
        scanned: this.#scanned,
      })
    return { source: side('source'), destination: side('destination') }
  }

  /** The number of open rechecks, and the number of comparisons per second. */
  get backlog(): { open: number; perSecond: number } {
    return { open: this.#rechecks.count, perSecond: comparedPerSecond }
  }

  /** True once both clusters have opened the change streams at the stored positions. */
  get continues(): boolean {
    return sides.every((side) => this.#followers.get(side)?.answered ?? false)
  }

  /** The time up to which the verifier has recorded the changes of a cluster; 0 before `#begin`. */
  #knownTime(side: Side): ClusterTime {
    return this.#followers.get(side)?.time ?? 0n
  }

  /** Runs until stopped. Rejects on a failure. */
  async run(): Promise<void> {
    const loops: Promise<void>[] = []
    try {
      await this.#begin()
      const tasks = [
        ...[...this.#followers.values()].map((follower) => () => follower.run()),
        () => this.#scanAll(),
        () => this.#compareAll(),
        () => this.#saveCheckpoints(),
        () => this.#countRepeatedly(),
        () => revisitStored(this.#revisitParts),
      ]
      for (const task of tasks) {
        loops.push(
          task().catch((error) => {
            if (!(error instanceof StoppedError) && !this.#stop.signal.aborted) this.#failure ??= error
            this.#stop.abort()
          }),
        )
      }
      await Promise.all(loops)
    } catch (error) {
      if (!(error instanceof StoppedError)) this.#failure ??= error
    } finally {
      this.#stop.abort()
      await Promise.all(loops)
    }
    try {
      if (this.#failure) throw this.#failure
      await this.#save(this.#parts.context).catch(() => {}) // a restart repeats what is not stored
    } finally {
      this.#ended.resolve()
    }
  }

  stop(): void {
    this.#stop.abort()
  }

  /** Resolves when `run` has ended, successfully or not. */
  get ended(): Promise<void> {
    return this.#ended.promise
  }

  /** Makes the streams poll at short intervals. Called before a verdict is requested. */
  wake(): void {
    for (const follower of this.#followers.values()) follower.wake()
  }

  /**
   * Issues a verdict. Call it when the source is quiet and all its changes are applied. Completes the scan, reads both
   * streams up to the current time, and compares all open rechecks until they are equal or proven different. Resolves
   * with null if so many documents expire on the source meanwhile that these deletes must be applied first.
   */
  async issueVerdict(): Promise<RecheckResult | null> {
    // The scan must include collections that were cataloged after the first complete scan, because the streams may not
    // contain their earlier writes.
    while (!this.#scan?.finish()) {
      if (this.#isBlocked()) return null
      await this.#pause(shortPauseMS)
    }
    this.wake()
    const parts = { ...this.#parts, ...this.#comparisonParts, comparison: this.#comparison }
    const readTime = (side: Side): ClusterTime => this.#knownTime(side)
    const streams = { ...parts, readTime, isBlocked: this.#isBlocked, pause: () => this.#pause(shortPauseMS) }
    // The source is quiet and all changes are applied, so the documents can be counted during the comparison.
    const counted = this.#counts.countsForVerdict ? this.#counts.count().catch(() => {}) : null
    for (let pass = 0; ; pass++) {
      if (!(await catchUp(streams))) return null
      const open = await this.#exclusively(() => compareEverything(parts))
      this.#context.journal?.('verdict pass', { pass: pass + 1, differences: open.total })
      if (open.total === 0) {
        await counted
        return { total: 0, explain: async () => ({ mismatches: [], total: 0 }) }
      }
      if (pass >= verdictPasses) return { total: open.total, explain: () => explainAll(parts, open) }
      await this.#pause(verdictPauseMS)
    }
  }

  async #begin(): Promise<void> {
    const { clusters, metadata, store } = this.#parts
    const starts: Record<Side, StreamPosition> = {
      source: await this.#checkpoint.startOf('source', clusters.source, this.#context),
      destination: await this.#checkpoint.startOf('destination', clusters.destination, this.#context),
    }
    for (const side of sides) {
      await this.#checkpoint.savePosition(side, starts[side])
      this.#followers.set(
        side,
        new Follower({
          side,
          cluster: clusters[side],
          start: starts[side],
          // On the destination, foreign collections are recognized by UUID.
          selected: side === 'source' ? this.#parts.selection.events : null,
          shared: side === 'source' ? this.#parts.sharedStream : null,
          context: this.#context,
          rechecks: this.#rechecks,
          catalog: this.#parts.catalog,
        }),
      )
    }
    const offered = this.#offered(starts.destination.time)
    await offered?.clear(this.#context.signal)
    this.#scan = new Scan(
      {
        clusters,
        metadata,
        context: this.#context,
        catalog: this.#parts.catalog,
        notBefore: { source: starts.source.time, destination: starts.destination.time },
        suspect: (entry, idElement) => this.#rechecks.suspect(entry.uuid, idElement, this.#checkpoint.range),
        waitForCapacity: (bytesRead) => this.#waitForCapacity(bytesRead),
        readAhead: this.#readAhead,
        compareMethod: this.#parts.compareMethod,
        done: (range) => this.#checkpoint.done(range),
        compared: (range) => this.#parts.onCompared?.(range),
        offered,
      },
      await store.loadRanges(),
    )
  }

  readonly #readAhead = (): ReadAhead => readAhead(this.#parts.roundTripMS(), this.#parts.throttle.readConcurrency)

  #offered(destinationTime: ClusterTime): OfferedRanges | null {
    const { helpers, epoch } = this.#parts
    if (!helpers) return null
    // Another instance stores every document whose change is not applied yet. All of them would have to be compared again.
    const storesMuch = (): boolean => this.#rechecks.full || this.#applicationIsBehind(behindSeconds)
    const others = (): number => (storesMuch() ? 0 : helpers.others())
    return new OfferedRanges({
      ...{ ...helpers, others, term: epoch, destinationTime },
      ownRanges: () => this.#readAhead().ranges,
    })
  }

  async #scanAll(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      const complete = await (this.#scan as Scan).run()
      if (complete && !this.#scanned) {
        await this.#storeScan()
        this.#scanned = true
        this.#parts.onInitiallyVerified()
      }
      await this.#pause(complete ? idleScanMS : shortPauseMS)
    }
  }

  /**
   * Stores that everything has been compared once. The caller reports it only after that. Otherwise a process that
   * restarts after the report would compare the last ranges again while `canCommit` is true.
   */
  async #storeScan(): Promise<void> {
    const before = this.#checkpoint.range
    for (;;) {
      await this.#exclusively(() => this.#save(this.#context))
      if (this.#checkpoint.isStoredBefore(before)) return
      await this.#pause(shortPauseMS)
    }
  }

  /** Compares due rechecks, without a pause while there is a backlog. */
  async #compareAll(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      if (this.#rechecks.count < deferredCount && this.#applicationIsBehind(burstLagSeconds)) {
        await this.#pause(backlogMS)
        continue
      }
      const compared = await this.#exclusively(async () => {
        const due = this.#rechecks.take(comparedPerCallMax, this.#comparableTime(), performance.now())
        await this.#comparison.compare(due)
        return due.length
      })
      if (this.#rechecks.count < backlogCount) await this.#pause(gatherMS)
      else if (compared < comparedPerCallMax) await this.#pause(backlogMS)
    }
  }

  #comparableTime(): ClusterTime {
    const { appliedTime, clusters } = this.#parts
    const { latest } = clusters.destination
    return this.#echo.comparable(appliedTime(), latest, this.#knownTime('destination'), performance.now())
  }

  async #saveCheckpoints(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#pause(checkpointMS)
      await this.#exclusively(() => this.#save(this.#context))
    }
  }

  get #revisitParts(): RevisitParts {
    return {
      store: this.#parts.store,
      rechecks: this.#rechecks,
      signal: this.#stop.signal,
      isPostponed: () => this.#rechecks.count > backlogCount || this.#applicationIsBehind(behindSeconds),
      isGrowing: () => !this.#scanned && (this.#parts.helpers?.others() ?? 0) > 0,
      exclusively: (work) => this.#exclusively(work),
      pause: (milliseconds) => this.#pause(milliseconds),
    }
  }

  #applicationIsBehind(seconds: number): boolean {
    return secondsOf(this.#knownTime('source')) - secondsOf(this.#parts.appliedTime()) > seconds
  }

  async #countRepeatedly(): Promise<void> {
    while (!this.#stop.signal.aborted) {
      await this.#counts.count()
      await this.#pause(this.#counts.pauseMS)
    }
  }

  /** True while the streams and the scan pause because of open rechecks that may wait for more changes to be applied. */
  readonly #isBlocked = (): boolean => this.#rechecks.full && this.#knownTime('source') > this.#parts.appliedTime()

  async #save(context: RetryContext): Promise<void> {
    const gone = this.#scan?.removeDropped() ?? []
    await this.#checkpoint.save(this.#followers, gone, () => context.signal.aborted)
  }

  /** Runs comparisons and checkpoints one at a time, because only one caller may have taken a recheck. */
  #exclusively<T>(work: () => Promise<T>): Promise<T> {
    const run = this.#busy.then(work)
    this.#busy = run.catch(() => {})
    return run
  }

  async #waitForCapacity(bytesRead: number): Promise<void> {
    const { throttle } = this.#parts
    throttle.spend(bytesRead)
    await throttle.earned(this.#stop.signal)
    while (this.#rechecks.full) await this.#pause(shortPauseMS)
  }

  async #pause(milliseconds: number): Promise<void> {
    if (this.#failure) throw this.#failure
    if (this.#stop.signal.aborted) throw new StoppedError()
    await sleep(milliseconds, undefined, { signal: this.#stop.signal }).catch(() => {})
  }
}
