import { isAlive } from '../domain/owner.ts'
import type { Ownership } from './ownership-store.ts'

const roundMS = 400
const restingMS = 1_000
/** Rounds follow each other quickly for this long after a change, because more changes usually follow, ms. */
const activeMS = 5_000
/**
 * An instance renews its lease every 2.5 s. If a lease was not renewed for this long, rounds follow each other quickly,
 * so that its expiry is found less than a second later than without rests, ms.
 */
const lateMS = 5_000

/**
 * Decides how soon the next round follows. Rounds rest, which means that they follow each other more slowly, while
 * nothing changes. A round costs an idle instance about a tenth of its CPU time per second.
 */
export class RoundPace {
  readonly #id: string
  readonly #judgesByLease: boolean
  #activeUntil = performance.now() + activeMS
  #observed = ''
  /** The expiry of the other instances' leases as it was first read, and when (ms, `performance.now()`). */
  #renewals = new Map<string, { expiresAt: number; since: number }>()
  #restrains = false

  /**
   * @param id mongosyncID of this instance
   * @param judgesByLease true if the expiry of the leases shows which instances are alive. If heartbeats show it, an
   * instance rests only while there is no other one
   */
  constructor(id: string, judgesByLease: boolean) {
    this.#id = id
    this.#judgesByLease = judgesByLease
  }

  /** Rounds do not rest for a while, because changes are expected. */
  active(): void {
    this.#activeUntil = performance.now() + activeMS
  }

  /** Called with what a round has read. */
  observed({ leases, claims, revision, hasOpenBarrier }: Ownership): void {
    const others = leases.filter((lease) => lease.id !== this.#id)
    const alive = others.filter((lease) => isAlive(lease))
    const now = performance.now()
    this.#renewals = new Map(
      alive.map(({ id, expiresAt }) => {
        const before = this.#renewals.get(id)
        const isSame = before?.expiresAt === expiresAt.getTime()
        return [id, isSame ? before : { expiresAt: expiresAt.getTime(), since: now }]
      }),
    )
    const isLate = [...this.#renewals.values()].some(({ since }) => now - since > lateMS)
    // A lease stays stored after its instance has ended. One that has expired but whose writes are not yet drained still
    // needs quick rounds, which end its term.
    const undrained = others.some(({ drained, epoch }) => drained <= epoch)
    this.#restrains = hasOpenBarrier || (this.#judgesByLease ? isLate : undrained)
    const terms = leases.map(({ expiresAt: _, sessions: _sessions, ...term }) => term)
    const owners = [...claims].map(([key, { owner, epoch }]) => [key, owner, epoch])
    const observed = JSON.stringify([revision, terms, owners])
    if (observed !== this.#observed) this.active()
    this.#observed = observed
  }

  /**
   * Returns the time until the next round, ms.
   * @param mayRest false while this instance takes part in something that needs quick rounds, such as a commit
   */
  pauseMS(mayRest: boolean): number {
    return mayRest && !this.#restrains && performance.now() > this.#activeUntil ? restingMS : roundMS
  }
}
