import type { StreamPosition } from '../mongo/change-stream.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { VerificationStore, VerifiedRange } from '../mongo/verification-store.ts'
import type { Follower } from './follow-changes.ts'
import type { Rechecks, Side } from './rechecks.ts'
import { toStored } from './verdict.ts'

/** Where the streams' positions are stored, beside the event application's partitions. */
export const streamPartition: Record<Side, number> = { source: -1, destination: -2 }

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
  #doneRanges: VerifiedRange[] = []

  constructor(parts: CheckpointParts) {
    this.#parts = parts
  }

  /** To be stored with the next one. */
  done(range: VerifiedRange): void {
    this.#doneRanges.push(range)
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
    const ranges = this.#doneRanges
    this.#doneRanges = []
    const due = rechecks.dueForStore(performance.now())
    await store.saveRechecks(due.map(toStored))
    for (const recheck of due) recheck.stored = true
    // First what was settled: one that is found different again since then is still in memory, and keeps its place in the store.
    await store.removeRechecks(rechecks.takeSettledStored())
    rechecks.leavePatientOnesToStore()
    await store.saveRanges(ranges)
    // After they were stored: one that is done later than this is forgotten at the next checkpoint.
    await store.removeRanges(gone)
    if (isOver()) return
    for (const [side, follower] of followers) {
      const position = follower.passed(rechecks.safeBatch(side, follower.newest))
      if (position) await this.savePosition(side, position)
    }
  }
}
