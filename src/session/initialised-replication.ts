import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import type { Lease } from '../mongo/lease.ts'
import type { Replication } from './replication.ts'
import type { WorkRuns } from './work-runs.ts'

interface Parts {
  lease: Pick<Lease, 'epoch'>
  coordination: Pick<Coordination, 'term' | 'leading'>
  peers: Pick<Peers, 'sync' | 'worked'>
  runs: Pick<WorkRuns, 'renewals' | 'signal'>
}

/**
 * Keeps the replication that has just created all collections, so that it also copies them and the stored state need not
 * be loaded again.
 */
export class InitialisedReplication {
  readonly #parts: Parts
  #kept: { replication: Replication; circumstances: string } | null = null

  constructor(parts: Parts) {
    this.#parts = parts
  }

  /** Called by the coordinator before it reports that all collections are created. */
  keep(replication: Replication): void {
    this.#kept = { replication, circumstances: this.#circumstances }
  }

  /**
   * Returns the replication that has just created all collections, once. Its state is the stored one, because only the
   * coordinator changes the catalog, and nothing else is stored before the sync replicates. Null if anything has happened
   * since that could make another instance the coordinator, or stop the work of that replication.
   */
  take(): Replication | null {
    const kept = this.#kept
    this.#kept = null
    const { coordination, peers, runs } = this.#parts
    const { sync } = peers
    if (!kept || kept.circumstances !== this.#circumstances || !coordination.leading) return null
    const isCurrent = sync.matches('replicating') && sync.context.term === coordination.term && !runs.signal.aborted
    if (!isCurrent || sync.can({ type: 'commit.renewed', ...peers.worked })) return null
    return kept.replication
  }

  get #circumstances(): string {
    const { lease, coordination, runs, peers } = this.#parts
    return JSON.stringify([lease.epoch, coordination.term, runs.renewals, peers.sync.context.convergences])
  }
}
