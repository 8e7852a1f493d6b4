import { randomUUID } from 'node:crypto'
import { segmentBytes } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { OwnerToken } from '../domain/owner.ts'
import type { Offer, OfferedRange, OfferState, RangeClaims, RangeResult } from '../mongo/range-claims.ts'

/** A range that another instance may compare, with its estimated size. */
export interface Shareable extends OfferedRange {
  estimatedBytes: number
}

/** The scan of the coordinator: the ranges that it has not begun to compare, and calls for the results of offered ones. */
export interface OfferingScan {
  /** The number of ranges that are not begun. */
  readonly waiting: number
  /** True if the coordinator has nothing left to begin. */
  readonly isIdle: boolean
  /** Takes the range that the scan would begin last; null if another instance cannot compare it. */
  takeLast: () => Shareable | null
  /** Another instance has compared the range. */
  accept: (range: Shareable, result: RangeResult) => void
  /**
   * No other instance has compared the range, and none can store a result for it any more.
   * @param isDeclined true if it is not to be offered again, because another instance cannot compare it
   */
  giveBack: (range: Shareable, isDeclined: boolean) => void
}

export interface OfferedRangesParts {
  claims: RangeClaims
  /** The coordinator's term. */
  term: number
  destinationTime: ClusterTime
  /** The number of other instances that take work now. */
  others: () => number
  isExpired: (owner: OwnerToken) => boolean
  /** The number of ranges that the coordinator itself compares at a time. */
  ownRanges: () => number
  /** Milliseconds of a monotonic clock. */
  now?: () => number
}

/** The other instances of the sync. */
export interface Helpers extends Pick<OfferedRangesParts, 'claims' | 'others' | 'isExpired'> {}

/**
 * Number of unclaimed offers that are kept per helping instance. The comparison of one offer takes a fraction of a second,
 * and exchanges are 100 ms apart.
 */
const offersEach = 4
const rangesMax = 64
/**
 * An offer is one document, so it must stay far below 16 MB, although one `_id` may have several megabytes. An offer is
 * full when the bounds of its ranges have this many bytes. A range whose own bounds have more bytes is not offered.
 */
const boundBytesMax = 2 * 1024 * 1024
/**
 * If the coordinator has no range left to begin, and no offer is completed or taken back for this long (ms), it compares
 * all offered ranges itself. The owner of an offer may be unable to read a cluster, or may not know of its claim because
 * the reply was lost.
 */
const stalledMS = 60_000

/**
 * Offers ranges of the first pass to the other instances, and takes their results. A range that is not finished is always
 * in exactly one place: it waits in the coordinator, is being compared there, or is in one offer. It leaves an offer only
 * when the coordinator has read the results of that offer, or when the offer is not stored any more. Only the coordinator
 * creates and removes offers, so an instance that claims or completes an offer after its removal changes nothing. Offers
 * of an earlier run of the verifier belong to another pass, and their results are not read.
 */
export class OfferedRanges {
  readonly #parts: OfferedRangesParts
  readonly #pass = randomUUID()
  readonly #offered = new Map<number, Shareable[]>()
  #number = 0
  /** When an offer was last completed or taken back, or the coordinator last had ranges left to begin. */
  #progressedAt: number

  constructor(parts: OfferedRangesParts) {
    this.#parts = parts
    this.#progressedAt = this.#now()
  }

  #now(): number {
    return (this.#parts.now ?? performance.now.bind(performance))()
  }

  /** True while a range is in an offer. */
  get isOpen(): boolean {
    return this.#offered.size > 0
  }

  /**
   * Takes results, takes back offers that would delay the end of the scan, and offers more ranges.
   * @param until ends the exchange, which then rejects with StoppedError
   */
  async exchange(scan: OfferingScan, until: AbortSignal): Promise<void> {
    await this.#parts.claims.until(until, (claims) => this.#exchange(claims, scan))
  }

  async #exchange(claims: RangeClaims, scan: OfferingScan): Promise<void> {
    const { others } = this.#parts
    const states = this.isOpen ? await claims.states(this.#pass) : []
    const completed = this.#take(new Map(states.map((state) => [state.number, state])), scan)
    if (completed.length > 0) await claims.remove(this.#pass, completed)
    const open = states.filter(({ number }) => this.#offered.has(number))
    const back = this.#toTakeBack(open, scan)
    if (back.length > 0) await claims.takeBack(this.#pass, back)
    const unclaimed = open.filter((one) => one.owner === null && !back.includes(one)).length
    const offers = this.#more(others() * offersEach - unclaimed, scan)
    if (offers.length > 0) await claims.offer(offers, this.#parts.term)
  }

  /** Removes the offers of earlier passes. Called before the first exchange. */
  async clear(until: AbortSignal): Promise<void> {
    await this.#parts.claims.until(until, (claims) => claims.clear())
  }

  /**
   * Passes the results of completed offers to the scan, and gives it back the ranges of offers that are not stored any
   * more. Returns the numbers of the completed offers.
   */
  #take(stored: ReadonlyMap<number, OfferState>, scan: OfferingScan): number[] {
    const completed: number[] = []
    for (const [number, ranges] of this.#offered) {
      const state = stored.get(number)
      if (state && !state.results) continue
      this.#offered.delete(number)
      this.#progressedAt = this.#now()
      if (state) completed.push(number)
      for (const [at, range] of ranges.entries()) {
        const result = state?.results?.[at]
        if (result) scan.accept(range, result)
        else scan.giveBack(range, state !== undefined)
      }
    }
    return completed
  }

  /**
   * Returns the offers to take back:
   *
   * - all offers, if the coordinator has had no range left to begin for `stalledMS` and no offer has left in that time;
   * - otherwise only offers without an owner or with an expired one: all of these if no other instance takes work, and as
   *   many as the coordinator compares at a time if it has no range left to begin.
   */
  #toTakeBack(open: readonly OfferState[], { isIdle }: OfferingScan): OfferState[] {
    const { isExpired, others, ownRanges } = this.#parts
    if (!isIdle) this.#progressedAt = this.#now()
    if (this.#now() - this.#progressedAt > stalledMS) return [...open]
    const isLeft = ({ owner }: OfferState): boolean => owner === null || isExpired(owner)
    if (others() === 0) return open.filter(isLeft)
    return isIdle ? open.filter(isLeft).slice(0, ownRanges()) : []
  }

  #more(count: number, scan: OfferingScan): Offer[] {
    const { ownRanges, others, destinationTime } = this.#parts
    const offers: Offer[] = []
    // The coordinator keeps enough ranges for itself until the next exchange, but near the end no more than its share.
    const kept = (): number => Math.min(2 * ownRanges(), Math.ceil(scan.waiting / (others() + 1)))
    while (offers.length < count && scan.waiting > kept()) {
      const ranges = this.#cut(scan.waiting - kept(), scan)
      if (ranges.length === 0) break
      const number = ++this.#number
      // If the offer is not stored after all, the next exchange gives its ranges back.
      this.#offered.set(number, ranges)
      offers.push({ pass: this.#pass, number, ranges, destinationTime })
    }
    return offers
  }

  /**
   * Takes the ranges of one offer. Small ranges share an offer. Near the end, offers become smaller, so that all instances
   * end at about the same time.
   */
  #cut(available: number, scan: OfferingScan): Shareable[] {
    const most = Math.max(1, Math.min(rangesMax, Math.floor(available / (offersEach * (this.#parts.others() + 1)))))
    const ranges: Shareable[] = []
    for (let bytes = 0, boundBytes = 0; ranges.length < most; ) {
      const range = scan.takeLast()
      if (!range) break
      const ofBounds = boundBytesOf(range)
      if (ofBounds > boundBytesMax) {
        scan.giveBack(range, true)
        continue
      }
      ranges.push(range)
      bytes += range.estimatedBytes
      boundBytes += ofBounds
      if (bytes >= segmentBytes / 2 || boundBytes >= boundBytesMax) break
    }
    return ranges
  }
}

function boundBytesOf({ from, to }: OfferedRange): number {
  return (from?.length ?? 0) + (to?.length ?? 0)
}
