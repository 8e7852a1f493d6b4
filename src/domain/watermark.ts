/**
 * Computes which stream position is safe to persist. Several lanes (queues) write to the destination in parallel, and
 * their writes are acknowledged in any order.
 *
 * Batches of the stream are numbered 1, 2, 3, … as they are routed. A lane holds a batch from the moment an event of
 * that batch enters the lane until the write that contains the event is acknowledged. The position after a batch is
 * safe if no lane holds that batch or an earlier one. The watermark never moves back.
 *
 *   routed      1   2   3   4   5
 *   lane A          [2  ……  4]             safe = 1: lane A still holds batch 2
 *   lane B      ok      ok
 */
export class Watermark<Position> {
  /**
   * For each lane, the lowest batch that waits in the lane (`open`) and the lowest that is being written (`inFlight`).
   */
  readonly #open: (number | null)[]
  readonly #inFlight: (number | null)[]
  readonly #positions: { batch: number; position: Position }[] = []
  #lastRouted = 0
  #safe: Position | null = null

  constructor(lanes: number) {
    this.#open = new Array(lanes).fill(null)
    this.#inFlight = new Array(lanes).fill(null)
  }

  /** The number of the next batch, to be passed to `hold` while that batch is routed. */
  get nextBatch(): number {
    return this.#lastRouted + 1
  }

  /** Lane `lane` now holds an event of batch `batch`. Batches must be held in ascending order. */
  hold(lane: number, batch: number): void {
    this.#open[lane] ??= batch
  }

  /** Every event of the next batch is in its lane. The stream resumes right after this batch at `position`. */
  routed(position: Position): void {
    this.#lastRouted += 1
    this.#positions.push({ batch: this.#lastRouted, position })
    this.#advance()
  }

  /** The lane begins to write everything that waits in it. */
  sending(lane: number): void {
    if (this.#inFlight[lane] !== null) throw new Error('a lane sends one batch at a time')
    this.#inFlight[lane] = this.#open[lane] ?? null
    this.#open[lane] = null
  }

  /** A majority has acknowledged everything that the lane wrote last. */
  acknowledged(lane: number): void {
    this.#inFlight[lane] = null
    this.#advance()
  }

  /** The newest position before which all writes are acknowledged; null before the first. */
  get safe(): Position | null {
    return this.#safe
  }

  #advance(): void {
    let lowestHeld = Number.POSITIVE_INFINITY
    for (const held of this.#open) if (held !== null && held < lowestHeld) lowestHeld = held
    for (const held of this.#inFlight) if (held !== null && held < lowestHeld) lowestHeld = held
    let passed = 0
    for (const entry of this.#positions) {
      if (entry.batch >= lowestHeld) break
      this.#safe = entry.position
      passed += 1
    }
    if (passed > 0) this.#positions.splice(0, passed)
  }
}
