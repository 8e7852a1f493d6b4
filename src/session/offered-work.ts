import { setTimeout as sleep } from 'node:timers/promises'
import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import type { InitialCompareMethod } from '../domain/compare-method.ts'
import { isStop } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { RangeClaims } from '../mongo/range-claims.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { StoredDocuments } from '../mongo/stored-documents.ts'
import { VerificationStore } from '../mongo/verification-store.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { OfferedComparison } from '../verify/compare-offered.ts'
import type { WorkFigures } from './work-figures.ts'
import type { WorkRuns } from './work-runs.ts'

export interface OfferedWorkParts {
  source: Cluster
  destination: Cluster
  /** The context of the lease term. */
  context: RetryContext
  throttle: Throttle
  compareMethod: InitialCompareMethod
  coordination: Coordination
  peers: Pick<Peers, 'sync'>
  runs: WorkRuns
  figures: WorkFigures
  /**
   * True when this instance knows that every document has been copied once. The coordinator offers nothing before that.
   */
  isCopied: () => boolean
  compared: (documents: number) => void
}

/** Interval at which an instance checks whether it may compare, ms. */
const checkMS = 250
/** Pause after a failure, ms. The coordinator compares what this instance does not. */
const afterFailureMS = 5_000

/**
 * Compares ranges that the coordinator offers while its verifier compares everything for the first time (the first
 * pass). Used while another instance is the coordinator.
 */
export class OfferedWork {
  readonly #parts: OfferedWorkParts
  /** Comparisons that have not ended. A comparison first gives back the ranges that it leaves undone, and then ends. */
  readonly #underWay = new Set<Promise<unknown>>()
  readonly #stops = new Set<AbortController>()
  #claims = 0

  constructor(parts: OfferedWorkParts) {
    this.#parts = parts
  }

  /**
   * Compares offered ranges whenever the coordinator's verifier is in its first pass. Returns a function that stops
   * this. That function does not wait for comparisons under way; `ended` does.
   */
  begin(): () => void {
    const stop = new AbortController()
    this.#stops.add(stop)
    void this.#repeat(stop.signal).finally(() => this.#stops.delete(stop))
    return () => stop.abort()
  }

  stop(): void {
    for (const stop of this.#stops) stop.abort()
  }

  /** Resolves when no comparison is under way any more. */
  async ended(): Promise<void> {
    while (this.#underWay.size > 0) await Promise.allSettled(this.#underWay)
  }

  /** True while this instance may compare. When it becomes false, comparisons under way end. */
  get #mayCompare(): boolean {
    const { context, coordination, peers, runs, isCopied } = this.#parts
    const { sync } = peers
    if (!isCopied()) return false
    if (context.signal.aborted || coordination.leading || coordination.coordinatorEpoch === 0) return false
    return sync.matches('replicating') && !sync.context.initiallyVerified && runs.current !== null
  }

  async #repeat(stopped: AbortSignal): Promise<void> {
    while (!stopped.aborted) {
      let pauseMS = checkMS
      if (this.#mayCompare) {
        const run = this.#takePart(stopped).catch((error) => {
          if (isStop(error)) return
          pauseMS = afterFailureMS
          this.#parts.context.onRetry?.('comparing ranges for the coordinator', error)
        })
        this.#underWay.add(run)
        await run
        this.#underWay.delete(run)
      }
      await sleep(pauseMS, undefined, { signal: stopped }).catch(() => {})
    }
  }

  /** Compares offered ranges until `#mayCompare` is false, a signal is aborted, or a failure occurs. */
  async #takePart(stopped: AbortSignal): Promise<void> {
    const { source, destination, context, throttle, compareMethod, coordination, runs, figures, compared } = this.#parts
    const disallowed = new AbortController()
    const signal = AbortSignal.any([context.signal, stopped, disallowed.signal])
    const timer = setInterval(() => {
      if (!this.#mayCompare) disallowed.abort()
    }, checkMS)
    const limited = { ...context, signal }
    const { current } = runs
    const claims = (retryContext: RetryContext) => new RangeClaims(new StoredDocuments(destination, retryContext))
    try {
      await new OfferedComparison({
        clusters: { source, destination },
        claims: claims(limited),
        releases: claims(context),
        store: new VerificationStore(destination, limited),
        context: limited,
        catalog: () => current?.catalog ?? null,
        reload: async () => await current?.reloadCatalog(),
        throttle,
        compareMethod,
        roundTripMS: () => figures.roundTrips.slowerMS,
        owner: coordination.token,
        claimNumbers: { last: () => this.#claims, next: () => ++this.#claims },
        term: () => coordination.coordinatorEpoch,
        isExpired: (owner) => coordination.isExpired(owner),
        compared: ({ source: documents }) => compared(documents),
      }).run()
    } finally {
      clearInterval(timer)
    }
  }
}
