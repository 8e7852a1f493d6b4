/**
 * Which stream position is safe to persist, given lanes that acknowledge in any order.
 *
 * Batches of the stream are numbered 1, 2, 3, … as they are routed. A lane holds a batch number from the moment an
 * event of that batch is put into the lane until the write that carries it is acknowledged. A position is safe when no
 * lane holds anything of its batch or of an earlier one. The watermark never moves back.
 *
 *   routed      1   2   3   4   5
 *   lane A          [2  ……  4]             safe = 1: lane A still holds batch 2
 *   lane B      ok      ok
 */
export class Watermark<Position> {
  /** Per lane: lowest batch held in the open (not yet sent) part and in the part under way. */
  readonly #open: (number | null)[]
  readonly #underWay: (number | null)[]
  readonly #positions: { batch: number; position: Position }[] = []
  #lastRouted = 0
  #safe: Position | null = null

  constructor(lanes: number) {
    this.#open = new Array(lanes).fill(null)
    this.#underWay = new Array(lanes).fill(null)
  }

  /** The number the next batch will carry: give it to `hold` while routing that batch. */
  get nextBatch(): number {
    return this.#lastRouted + 1
  }

  /** Lane `lane` now holds something of batch `batch`. Batches are held in ascending order. */
  hold(lane: number, batch: number): void {
    this.#open[lane] ??= batch
  }

  /** Every event of the batch is in its lane; `position` resumes right after it. */
  routed(position: Position): void {
    this.#lastRouted += 1
    this.#positions.push({ batch: this.#lastRouted, position })
    this.#advance()
  }

  /** The lane sends everything it holds. */
  sending(lane: number): void {
    if (this.#underWay[lane] !== null) throw new Error('a lane sends one batch at a time')
    this.#underWay[lane] = this.#open[lane] ?? null
    this.#open[lane] = null
  }

  /** What the lane sent last is acknowledged by a majority. */
  acknowledged(lane: number): void {
    this.#underWay[lane] = null
    this.#advance()
  }

  /** The newest position with everything up to it acknowledged, or null before there is one. */
  get safe(): Position | null {
    return this.#safe
  }

  #advance(): void {
    let lowestHeld = Number.POSITIVE_INFINITY
    for (const held of this.#open) if (held !== null && held < lowestHeld) lowestHeld = held
    for (const held of this.#underWay) if (held !== null && held < lowestHeld) lowestHeld = held
    let passed = 0
    for (const entry of this.#positions) {
      if (entry.batch >= lowestHeld) break
      this.#safe = entry.position
      passed += 1
    }
    if (passed > 0) this.#positions.splice(0, passed)
  }
}
