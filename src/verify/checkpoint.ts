import type { StreamPosition } from '../mongo/change-stream.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { appendOplogNote } from '../mongo/oplog-note.ts'
import { type RetryContext, retry } from '../mongo/retry.ts'
import type { VerificationStore, VerifiedRange } from '../mongo/verification-store.ts'
import type { Follower } from './follow-changes.ts'
import type { Rechecks, Side } from './rechecks.ts'
import { toStored } from './verdict.ts'

/** The partition numbers of the verifier's stream positions, stored next to those of event application. */
export const streamPartition: Record<Side, number> = { source: -1, destination: -2 }

/** A position that has advanced without passing a change is stored at most this often. */
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
  /** Finished ranges that are not stored yet. A suspect of a range has this range's number or a lower one. */
  #doneRanges: { number: number; range: VerifiedRange }[] = []
  #range = 1
  #savedAt: Record<Side, number> = { source: 0, destination: 0 }

  constructor(parts: CheckpointParts) {
    this.#parts = parts
  }

  /** The range number for suspects that the scan finds now. */
  get range(): number {
    return this.#range
  }

  /** Adds a finished range. It is stored once each of its suspects is stored or resolved. */
  done(range: VerifiedRange): void {
    this.#doneRanges.push({ number: this.#range++, range })
  }

  /** True when all finished ranges whose number is lower than `before` are stored. */
  isStoredBefore(before: number): boolean {
    return this.#doneRanges.every(({ number }) => number >= before)
  }

  /** Returns the stored position, or the current time on the first run, when nothing has been compared yet. */
  async startOf(side: Side, cluster: Cluster, context: RetryContext): Promise<StreamPosition> {
    const stored = await this.#parts.metadata.loadPosition(streamPartition[side])
    if (stored) return stored
    await retry('beginning verification', context, () => appendOplogNote(cluster, 'verification'))
    return { kind: 'time', time: cluster.latest }
  }

  async savePosition(side: Side, position: StreamPosition): Promise<void> {
    await this.#parts.metadata.savePosition(streamPartition[side], this.#parts.epoch, position)
  }

  /**
   * @param gone collections whose ranges are no longer needed
   * @param isOver true when this verification has ended. Positions then do not advance, because another instance may be
   * verifying
   */
  async save(followers: ReadonlyMap<Side, Follower>, gone: string[], isOver: () => boolean): Promise<void> {
    const { store, rechecks } = this.#parts
    await store.removeRechecks(rechecks.takeRemovable())
    const due = rechecks.beginStoring('stillDifferent')
    await store.saveRechecks(due.map(toStored))
    rechecks.endStoring()
    const safe = rechecks.safeRange()
    this.#doneRanges = this.#doneRanges.filter(({ range }) => !gone.includes(range.collection))
    // More ranges may finish while these are being stored.
    const stored = new Set(this.#doneRanges.filter(({ number }) => number <= safe))
    await store.saveRanges([...stored].map(({ range }) => range))
    this.#doneRanges = this.#doneRanges.filter((one) => !stored.has(one))
    // A range of these collections that finishes later is removed by the next checkpoint.
    await store.removeRanges(gone)
    if (isOver()) return
    for (const [side, follower] of followers) await this.#movePosition(side, follower)
  }

  /** Stores an idle position rarely, because each such write is a change that the destination's stream must read. */
  async #movePosition(side: Side, follower: Follower): Promise<void> {
    const position = follower.takePosition(
      this.#parts.rechecks.safeBatch(side, follower.newest),
      performance.now() - this.#savedAt[side] > idlePositionMS,
    )
    if (!position) return
    this.#savedAt[side] = performance.now()
    await this.savePosition(side, position)
  }
}
