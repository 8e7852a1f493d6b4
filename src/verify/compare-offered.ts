import { setTimeout as sleep } from 'node:timers/promises'
import type { Catalog, CatalogEntry } from '../domain/catalog.ts'
import { type ClusterTime, laterOf } from '../domain/cluster-time.ts'
import type { InitialCompareMethod } from '../domain/compare-method.ts'
import { isStop, StoppedError } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import type { OwnerToken } from '../domain/owner.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import type { ClaimedOffer, OfferedRange, RangeClaims, RangeResult } from '../mongo/range-claims.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { VerificationStore } from '../mongo/verification-store.ts'
import { Slots } from '../throttle/slots.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { FallbackLog } from './fallback-log.ts'
import { type ReadAhead, readAhead } from './read-ahead.ts'
import { compareRangeOf } from './read-range.ts'
import { Suspects } from './suspects.ts'

export interface OfferedComparisonParts {
  clusters: BothClusters
  claims: RangeClaims
  /** Gives claims back. Each call passes its own signal, because the last call follows an abort of `context`'s signal. */
  releases: Pick<RangeClaims, 'until'>
  store: Pick<VerificationStore, 'saveRechecks'>
  /** Its signal ends the work. */
  context: RetryContext
  catalog: () => Catalog | null
  /** Loads the catalog that the coordinator has stored. */
  reload: () => Promise<void>
  throttle: Pick<Throttle, 'spend' | 'earned' | 'readConcurrency'>
  /** Round trip to the slower cluster, ms. */
  roundTripMS: () => number
  compareMethod: InitialCompareMethod
  owner: OwnerToken
  claimNumbers: ClaimNumbers
  /** The term of the coordinator whose offers are claimed. */
  term: () => number
  isExpired: (owner: OwnerToken) => boolean
  /** Called for each range whose result is stored. A result that was refused does not count. */
  compared: (result: RangeResult) => void
}

/** Numbers of claims, each higher than all earlier ones. */
export interface ClaimNumbers {
  /** The highest number so far; 0 if there is none. */
  last: () => number
  next: () => number
}

/**
 * How long a stop waits until the claims are given back, ms. If the destination does not answer, the next run gives them
 * back, or the coordinator compares the ranges itself.
 */
const releaseMS = 5_000
/** Pause before the next claim when nothing was left to claim, ms. */
const claimAgainMS = 250

/**
 * Compares ranges that the coordinator's verifier offers. A document that differs is stored as a recheck before the
 * result of its range is stored, so no range counts as verified without the rechecks of its documents. This instance
 * does not follow changes after it has read a range: the coordinator's verifier follows both change streams, from times
 * before that read.
 */
export class OfferedComparison {
  readonly #parts: OfferedComparisonParts
  readonly #fallbacks: FallbackLog
  readonly #underWay = new Set<Promise<void>>()
  readonly #slots = new Slots(() => this.#readAhead().ranges)
  #failure: unknown = null

  constructor(parts: OfferedComparisonParts) {
    this.#parts = parts
    this.#fallbacks = new FallbackLog(parts.context)
  }

  /**
   * Runs until the signal is aborted or a failure occurs, and then gives its claims back. Rejects on a failure, unless
   * the signal is aborted.
   */
  async run(): Promise<void> {
    const { context, releases, owner, claimNumbers } = this.#parts
    const { signal } = context
    const release = async (until: AbortSignal): Promise<void> => {
      if (claimNumbers.last() > 0) await releases.until(until, (of) => of.release(owner, claimNumbers.last()))
    }
    // An earlier run may have failed to give its claims back.
    await release(signal)
    try {
      while (!signal.aborted && !this.#failure) await this.#claim()
    } catch (error) {
      this.#failure ??= error
    }
    await Promise.all(this.#underWay)
    const limit = new AbortController()
    const timer = setTimeout(() => limit.abort(), releaseMS)
    await release(limit.signal)
      .catch((error) => {
        this.#failure ??= error
      })
      .finally(() => clearTimeout(timer))
    if (this.#failure && !isStop(this.#failure) && !signal.aborted) throw this.#failure
  }

  /** Claims up to twice as many offers as are compared at a time, so that the next comparison need not wait for a claim. */
  async #claim(): Promise<void> {
    const { context, claims, owner, claimNumbers, term, isExpired } = this.#parts
    const limit = 2 * this.#readAhead().ranges - this.#underWay.size
    const claimed = limit > 0 ? await claims.claim(owner, claimNumbers.next(), limit, term(), isExpired) : []
    for (const offer of claimed) {
      const run = this.#slots
        .run(context.signal, () => this.#compareOffer(offer))
        .catch((error) => {
          this.#failure ??= error
        })
        .finally(() => this.#underWay.delete(run))
      this.#underWay.add(run)
    }
    if (claimed.length > 0) return
    const pause = sleep(claimAgainMS, undefined, { signal: context.signal }).catch(() => {})
    await Promise.race([...this.#underWay, pause])
  }

  async #compareOffer(offer: ClaimedOffer): Promise<void> {
    const results: (RangeResult | null)[] = []
    for (const range of offer.ranges) results.push(await this.#compare(offer, range))
    if (!(await this.#parts.claims.complete(offer, results))) return
    for (const result of results) if (result) this.#parts.compared(result)
  }

  /**
   * Returns null if this instance cannot compare the range. The coordinator then compares the range, and reports the
   * cause if it fails too.
   */
  async #compare({ destinationTime }: ClaimedOffer, range: OfferedRange): Promise<RangeResult | null> {
    const { context, reload } = this.#parts
    if (!this.#entryOf(range)) await reload()
    const entry = this.#entryOf(range)
    if (!entry) return null
    const what = `verifying ${namespace(entry.database, entry.name)}`
    try {
      const result = await retry(what, context, async (progressed) => {
        const notBefore = { source: this.#sourceTime(range, entry), destination: destinationTime }
        const suspects = new Suspects(this.#parts, entry, notBefore.source)
        const comparison = await compareRangeOf(
          {
            clusters: this.#parts.clusters,
            notBefore,
            mayReadSecondaries: true,
            suspect: (idElement) => suspects.add(idElement),
            waitForCapacity: async (bytesRead) => {
              // An interrupted comparison of a range starts again from the beginning.
              progressed(false)
              await this.#waitForCapacity(bytesRead)
              await suspects.storeMany()
            },
            readAhead: () => this.#readAhead(),
            compareMethod: this.#parts.compareMethod,
            fallbacks: this.#fallbacks,
          },
          entry,
          range,
        )
        await suspects.store()
        return { ...comparison.documents, bytes: comparison.bytes }
      })
      // The collection may have been created again on the destination meanwhile.
      return this.#entryOf(range) === entry ? result : null
    } catch (error) {
      if (context.signal.aborted) throw new StoppedError()
      context.onRetry?.(what, error)
      return null
    }
  }

  /**
   * Returns the earliest time as of which the source may be read. The coordinator has stored such a time in the range. If
   * this instance knows of a convergence of the collection that began later, that time applies. A read from a secondary
   * is also no older than the replies of the source that this instance has received (`openBulkRange`).
   */
  #sourceTime({ sourceTime }: OfferedRange, { convergedFrom }: CatalogEntry): ClusterTime {
    return laterOf(sourceTime, convergedFrom ?? 0n)
  }

  /** Undefined if this instance's catalog has no such collection, or another destination UUID for it than the range. */
  #entryOf({ collection, destination }: OfferedRange): CatalogEntry | undefined {
    const entry = this.#parts.catalog()?.get(collection)
    return entry?.destinationUUID === destination ? entry : undefined
  }

  async #waitForCapacity(bytesRead: number): Promise<void> {
    const { throttle, context } = this.#parts
    throttle.spend(bytesRead)
    await throttle.earned(context.signal)
  }

  #readAhead(): ReadAhead {
    return readAhead(this.#parts.roundTripMS(), this.#parts.throttle.readConcurrency)
  }
}
