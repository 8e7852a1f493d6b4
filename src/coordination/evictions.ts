import { setTimeout as sleep } from 'node:timers/promises'
import { type LeaseView, ownerToken } from '../domain/owner.ts'
import type { OwnershipStore } from './ownership-store.ts'

export interface EvictionsParts {
  /** mongosyncID. */
  id: string
  store: OwnershipStore
  /** How long an instance may go on believing that it holds its lease, ms. */
  confirmMS: number
  onFailed: (id: string, error: unknown) => void
  /** None of its writes is under way any more. */
  onEvicted: (lease: LeaseView, seconds: number) => void
  /** What the buried instance owned may be claimed by now. */
  onDrained: () => void
}

/** Ends the lives of instances whose leases have expired, each in the background: it may take as long as that instance's last write. */
export class Evictions {
  readonly #parts: EvictionsParts
  readonly #underWay = new Set<string>()

  constructor(parts: EvictionsParts) {
    this.#parts = parts
  }

  /** Of those leases that have expired; not of this instance's own. */
  begin(leases: readonly LeaseView[], stopped: AbortSignal): void {
    for (const lease of leases) {
      if (lease.expired && lease.drained <= lease.epoch && lease.id !== this.#parts.id) this.#evict(lease, stopped)
    }
  }

  #evict(lease: LeaseView, signal: AbortSignal): void {
    const { store, confirmMS, onFailed, onEvicted, onDrained: onOver } = this.#parts
    const key = ownerToken(lease.id, lease.epoch)
    if (this.#underWay.has(key)) return
    this.#underWay.add(key)
    const began = performance.now()
    const pause = async (milliseconds: number): Promise<void> => {
      await sleep(milliseconds, undefined, { signal })
    }
    store
      .evict(lease, confirmMS, pause)
      .then((evicted) => {
        if (evicted) onEvicted(lease, (performance.now() - began) / 1_000)
      })
      .catch((error) => onFailed(lease.id, error))
      .finally(() => {
        this.#underWay.delete(key)
        onOver()
      })
  }
}
