import type { StreamPosition } from '../mongo/change-stream.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { VerificationStore, VerifiedRange } from '../mongo/verification-store.ts'
import type { Follower } from './follow-changes.ts'
import type { Rechecks, Side } from './rechecks.ts'
import { toStored } from './verdict.ts'

/** The partition numbers of the verifier's stream positions, stored next to those of event application. */
export const streamPartition: Record<Side, number> = { source: -1, destination: -2 }

/** Interval for storing a position that has advanced without passing a change. */
const idlePositionMS = 10_000

export interface CheckpointParts {
  store: VerificationStore
  metadata: Metadata
  /** Coordinator term. Delayed writes from an earlier term cannot advance positions. */
  epoch: number
  rechecks: Rechecks
}

/**
 * Stores the progress of a verification, so that a restart continues: scanned ranges, open rechecks and stream
 * positions.
 */
export class Checkpoint {
  readonly #parts: CheckpointParts
  /** Finished ranges that are not stored yet, each with a number that is at least that of its suspects. */
  #doneRanges: { number: number; range: VerifiedRange }[] = []
  #range = 1
  #savedAt: Record<Side, number> = { source: 0, destination: 0 }

  constructor(parts: CheckpointParts) {
    this.#parts = parts
  }

  /** The number that suspects of the ranges being scanned now get. */
  get range(): number {
    return this.#range
  }

  /** Adds a finished range. It is stored once none of its suspects exists only in memory. */
  done(range: VerifiedRange): void {
    // Suspects of this range have this number or a lower one.
    this.#doneRanges.push({ number: this.#range++, range })
  }

  async loadPosition(side: Side): Promise<StreamPosition | null> {
    return await this.#parts.metadata.loadPosition(streamPartition[side])
  }

  async savePosition(side: Side, position: StreamPosition): Promise<void> {
    await this.#parts.metadata.savePosition(streamPartition[side], this.#parts.epoch, position)
  }

  /**
   * @param gone collections whose ranges are no longer needed
   * @param isOver checked before positions advance, because another instance may be verifying by then
   */
  async save(followers: ReadonlyMap<Side, Follower>, gone: string[], isOver: () => boolean): Promise<void> {
    const { store, rechecks } = this.#parts
    await store.removeRechecks(rechecks.takeRemovable())
    const due = rechecks.beginStoring('patient')
    await store.saveRechecks(due.map(toStored))
    rechecks.endStoring()
    const safe = rechecks.safeRange()
    this.#doneRanges = this.#doneRanges.filter(({ range }) => !gone.includes(range.collection))
    const ranges = this.#doneRanges.filter(({ number }) => number <= safe).map(({ range }) => range)
    await store.saveRanges(ranges)
    this.#doneRanges = this.#doneRanges.filter(({ number }) => number > safe)
    // Removed after the ranges are stored. The next checkpoint removes ranges that finish later than this.
    await store.removeRanges(gone)
    if (isOver()) return
    for (const [side, follower] of followers) await this.#movePosition(side, follower)
  }

  /** Stores an idle position rarely, because each store is itself a change that the destination's stream must read. */
  async #movePosition(side: Side, follower: Follower): Promise<void> {
    const passed = follower.passed(
      this.#parts.rechecks.safeBatch(side, follower.newest),
      performance.now() - this.#savedAt[side] > idlePositionMS,
    )
    if (!passed) return
    this.#savedAt[side] = performance.now()
    await this.savePosition(side, passed)
  }
}
