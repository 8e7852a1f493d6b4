import type { Peers } from '../coordination/peers.ts'
import type { Lease } from '../mongo/lease.ts'

/** How long a state that was read ahead is used in place of a read, ms. */
const preloadedMS = 1_000

/** Reads the state of the sync ahead of its first use in a lease term, so that this use need not wait for a read. */
export class PreloadedState {
  readonly #peers: Pick<Peers, 'load'>
  readonly #lease: Pick<Lease, 'epoch'>
  /** The lease epoch in which `load` has read the state of the sync, and when; null once that was used. */
  #loaded: { epoch: number; at: number } | null = null

  constructor(peers: Pick<Peers, 'load'>, lease: Pick<Lease, 'epoch'>) {
    this.#peers = peers
    this.#lease = lease
  }

  /** Call it while the lease is held. */
  async load(): Promise<void> {
    const [{ epoch }, at] = [this.#lease, performance.now()]
    await this.#peers.load()
    this.#loaded = { epoch, at }
  }

  /**
   * Returns true the first time after `load`, in its lease term and soon after it. `Peers.sync` is then the stored state.
   * @param atAnyAge true if the caller's next write has no effect on any other stored state
   */
  use(atAnyAge = false): boolean {
    const { epoch, at } = this.#loaded ?? { epoch: -1, at: 0 }
    this.#loaded = null
    return epoch === this.#lease.epoch && (atAnyAge || performance.now() - at < preloadedMS)
  }
}
