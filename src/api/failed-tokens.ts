import { isIPv6 } from 'node:net'
import { ThrottledReport } from './throttled-report.ts'

/**
 * Limits how often each address may fail to send a valid token. Unauthorized clients can then neither fill the log nor
 * try tokens at full speed. A request with a valid token is never affected: a scraper with an outdated token must not
 * lock out an operator at the same address.
 */

/** A dashboard that is opened without a token fails a few times; a scraper without one fails every few seconds. */
export const failuresPerMinuteMax = 30
const windowMS = 60_000
/** Maximum number of entries, of about 200 bytes each. All further addresses share one entry. */
const addressesMax = 10_000
const others = 'others'

export interface RefusedTokens {
  /** The address of the latest attempt. */
  remoteAddress: string | null
  /** Number of attempts that were refused with 429 since the last call of `onRefused`. */
  attempts: number
  failuresPerMinuteMax: number
}

interface Failures {
  since: number
  count: number
}

export class FailedTokens {
  readonly #failures = new Map<string, Failures>()
  readonly #now: () => number
  readonly #limited: ThrottledReport<RefusedTokens>

  /**
   * @param onRefused called once a minute at most
   * @param now milliseconds of a clock that never goes back
   */
  constructor(onRefused: (refused: RefusedTokens) => void, now: () => number = () => performance.now()) {
    this.#now = now
    this.#limited = new ThrottledReport(onRefused, now)
  }

  /** Number of entries in memory. */
  get size(): number {
    return this.#failures.size
  }

  /** Counts a failure. Returns null while the address may fail again, else the seconds until then. */
  add(remoteAddress: string | null): number | null {
    const now = this.#now()
    const failures = this.#failuresOf(networkOf(remoteAddress), now)
    failures.count += 1
    if (failures.count <= failuresPerMinuteMax) return null
    this.#limited.add((attempts) => ({ remoteAddress, attempts, failuresPerMinuteMax }))
    return Math.max(1, Math.ceil((failures.since + windowMS - now) / 1_000))
  }

  #failuresOf(network: string, now: number): Failures {
    const known = this.#failures.get(network)
    if (known && now - known.since < windowMS) return known
    // The oldest window is the first in the map, because each is inserted when it begins.
    this.#failures.delete(network)
    for (const [other, { since }] of this.#failures) {
      if (now - since < windowMS) break
      this.#failures.delete(other)
    }
    if (this.#failures.size >= addressesMax && network !== others) return this.#failuresOf(others, now)
    const first = { since: now, count: 0 }
    this.#failures.set(network, first)
    return first
  }
}

/**
 * Returns the part of an address under which clients are counted: an IPv4 address (also if it is mapped into IPv6), or
 * the first 64 bits of an IPv6 address. A host can use every address of its IPv6 subnet, which has these 64 bits in
 * common (RFC 4291, section 2.5.4).
 */
export function networkOf(remoteAddress: string | null): string {
  if (remoteAddress === null) return ''
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(remoteAddress)
  if (mapped?.[1]) return mapped[1]
  const address = remoteAddress.replace(/%.*$/, '')
  if (!isIPv6(address)) return remoteAddress
  const [head = '', tail] = address.split('::')
  const groups = head === '' ? [] : head.split(':')
  if (tail !== undefined) {
    const following = tail === '' ? 0 : tail.split(':').length
    while (groups.length + following < 8) groups.push('0')
    groups.push(...(tail === '' ? [] : tail.split(':')))
  }
  return groups
    .slice(0, 4)
    .map((group) => Number.parseInt(group, 16).toString(16))
    .join(':')
}
