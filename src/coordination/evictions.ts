import { setTimeout as sleep } from 'node:timers/promises'
import type { LeaseView } from '../domain/owner.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { OwnershipStore } from './ownership-store.ts'

export interface EvictionsParts {
  /** The mongosyncID of this instance. */
  id: string
  store: OwnershipStore
  /**
   * How long an evicted instance may still assume that it holds its lease, ms; 0 without a failure detector, because an
   * instance then no longer assumes this when its lease has expired.
   */
  confirmMS: number
  context: Pick<RetryContext, 'onRetry' | 'journal'>
  /**
   * Called when an eviction has succeeded or failed, because the claims of the expired instance may be free by then.
   */
  onEnded: () => void
}

/**
 * Evicts instances whose leases have expired. Each eviction runs in the background, because it may take as long as the
 * last write of the expired instance.
 */
export class Evictions {
  readonly #parts: EvictionsParts
  /** mongosyncIDs of the instances that are being evicted, without the lease's epoch, because an eviction raises it. */
  readonly #underWay = new Set<string>()

  constructor(parts: EvictionsParts) {
    this.#parts = parts
  }

  /**
   * Begins an eviction of each instance whose lease has expired and whose writes may not have ended, except of this
   * instance. An eviction that is already running is not begun again.
   */
  begin(leases: readonly LeaseView[], stopped: AbortSignal): void {
    for (const lease of leases) {
      if (lease.expired && lease.drained <= lease.epoch && lease.id !== this.#parts.id) this.#evict(lease, stopped)
    }
  }

  #evict(lease: LeaseView, signal: AbortSignal): void {
    const { store, confirmMS, context, onEnded } = this.#parts
    if (this.#underWay.has(lease.id)) return
    this.#underWay.add(lease.id)
    const began = performance.now()
    const pause = async (milliseconds: number): Promise<void> => {
      await sleep(milliseconds, undefined, { signal })
    }
    store
      .evict(lease, confirmMS, pause)
      .then((evicted) => {
        if (!evicted) return
        // All writes of the evicted instance have ended by now.
        const seconds = (performance.now() - began) / 1_000
        context.journal?.('instance evicted', { instance: lease.id, epoch: lease.epoch, seconds })
      })
      .catch((error) => context.onRetry?.(`evicting the instance ${lease.id}`, error))
      .finally(() => {
        this.#underWay.delete(lease.id)
        onEnded()
      })
  }
}
