import type { StreamPosition } from '../mongo/change-stream.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { VerificationStore, VerifiedRange } from '../mongo/verification-store.ts'
import type { Follower } from './follow-changes.ts'
import type { Rechecks, Side } from './rechecks.ts'
import { toStored } from './verdict.ts'

/** Where the streams' positions are stored, beside the event application's partitions. */
export const streamPartition: Record<Side, number> = { source: -1, destination: -2 }

/** A position that moved past no change is stored this often. */
const idlePositionMS = 10_000

export interface CheckpointParts {
  store: VerificationStore
  metadata: Metadata
  /** Of the office in which is verified: a predecessor's late word moves no position. */
  epoch: number
  rechecks: Rechecks
}

/** What of a verification is stored, so that a restart goes on: what was scanned, what is open, how far the streams are. */
export class Checkpoint {
  readonly #parts: CheckpointParts
  /** Each with the number that its suspects have. */
  #doneRanges: { number: number; range: VerifiedRange }[] = []
  #range = 1
  #savedAt: Record<Side, number> = { source: 0, destination: 0 }

  constructor(parts: CheckpointParts) {
    this.#parts = parts
  }

  /** What the ranges being scanned now give as their number when they find a suspect. */
  get range(): number {
    return this.#range
  }

  /** To be stored once none of its suspects is in memory alone. */
  done(range: VerifiedRange): void {
    // Its suspects have this number or an earlier one.
    this.#doneRanges.push({ number: this.#range++, range })
  }

  async loadPosition(side: Side): Promise<StreamPosition | null> {
    return await this.#parts.metadata.loadPosition(streamPartition[side])
  }

  async savePosition(side: Side, position: StreamPosition): Promise<void> {
    await this.#parts.metadata.savePosition(streamPartition[side], this.#parts.epoch, position)
  }

  /**
   * @param gone collections whose ranges nobody will ask for again
   * @param isOver asked before positions move: by then another may verify
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
    // After they were stored: one that is done later than this is forgotten at the next checkpoint.
    await store.removeRanges(gone)
    if (isOver()) return
    for (const [side, follower] of followers) await this.#movePosition(side, follower)
  }

  /** Where nothing happens the position is stored seldom: each time it is, the destination has a change for its stream to read. */
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
