import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import { both } from '../domain/in-parallel.ts'
import type { Lease } from '../mongo/lease.ts'
import type { Selection } from '../mongo/selection.ts'
import type { Replication } from './replication.ts'
import type { WorkRuns } from './work-runs.ts'

interface Parts {
  lease: Pick<Lease, 'epoch'>
  coordination: Pick<Coordination, 'term' | 'leading' | 'isAlone'>
  peers: Pick<Peers, 'sync' | 'view'>
  runs: Pick<WorkRuns, 'renewals' | 'signal' | 'latest'>
  /** Reads the state of the sync, and loads everything else. */
  stored: { preload(): Promise<void>; load(current: boolean): Promise<Replication> }
  /** The namespaces that are synced, according to the state that was read last. */
  selection: () => Selection
}

/**
 * Loads the stored state when an instance restarts, for its figures. If the instance is the only one, the first worker
 * continues from that state, so it need not be loaded again.
 */
export class RestoredReplication {
  readonly #parts: Parts
  #kept: { replication: Replication; circumstances: string; revision: number } | null = null

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Reads the state of the sync and loads everything else that is stored. */
  async load(): Promise<void> {
    const { stored, runs, peers, coordination } = this.#parts
    const circumstances = this.#circumstances
    const selection = this.#parts.selection()
    // The state has the current filters. They usually are those of the start, so the rest is loaded at the same time.
    const [, first] = await both(stored.preload(), stored.load(false))
    const isSelected = this.#parts.selection() === selection
    const replication = isSelected ? first : await stored.load(false)
    if (runs.latest === first) runs.latest = replication
    if (circumstances === null || circumstances !== this.#circumstances) return
    // The first worker's coordinator stores its term before it calls `take`.
    const elections = peers.sync.context.term < coordination.term ? 1 : 0
    this.#kept = { replication, circumstances, revision: peers.view.revision + elections }
  }

  /**
   * Returns the loaded replication, once, if the stored state is certainly the same. Call it when this instance has stored
   * its coordinator term. Only the coordinator changes the catalog, and earlier coordinators change nothing after their
   * term has ended. Other instances could record tombstones, but there are none. Null if anything but the coordinator's
   * election was stored since, or if the work of that replication was stopped.
   */
  take(): Replication | null {
    const kept = this.#kept
    this.#kept = null
    const { peers, runs } = this.#parts
    if (!kept || kept.circumstances !== this.#circumstances || runs.signal.aborted) return null
    const isElected = peers.sync.context.term === this.#parts.coordination.term
    return isElected && peers.view.revision === kept.revision ? kept.replication : null
  }

  /** Null unless this instance coordinates and no other instance exists. */
  get #circumstances(): string | null {
    const { lease, coordination, runs } = this.#parts
    if (!coordination.leading || !coordination.isAlone) return null
    return JSON.stringify([lease.epoch, coordination.term, runs.renewals])
  }
}
