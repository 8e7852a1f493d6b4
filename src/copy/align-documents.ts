import { type IdentityKey, idElementOf, identityKey } from '../documents/identity.ts'

export type Side = 'source' | 'destination'

/**
 * The documents that were read from each side, in `_id` order. `at` is the index of the first one that is not decided
 * yet.
 */
export type Undecided = Record<Side, { documents: Buffer[]; at: number }>

/** What has been decided so far. Documents that are equal on both sides are only counted. */
export interface Decided {
  /** Documents that the destination does not have. */
  missing: Buffer[]
  /** `_id` elements of documents that differ, or that the source does not have. */
  differing: Buffer[]
  /** The last decided document that both sides have, or null. Everything before it is decided on both sides. */
  lastCommon: Buffer | null
}

/** Returns the given `_id`s that the cluster of this side does not have. */
export type AbsentOn = (side: Side, idElements: Buffer[]) => Promise<ReadonlySet<IdentityKey>>

/**
 * Aligns two streams of documents that both servers return in `_id` order. It does not compare `_id`s by order, so it
 * does not depend on MongoDB's sort order. It aligns both streams again at the next `_id` that both sides have. When
 * neither side's next document is in the batch of the other side, it asks each cluster which of the other's `_id`s it
 * has. The cost of a run of documents that one side lacks therefore depends on the length of the run, not on the rest
 * of the range.
 *
 * Both clusters may change during the read. A wrong decision is harmless: a missing document that exists by now is not
 * inserted, and a differing document is read again before it is written.
 */
export class Alignment {
  readonly #absentOn: AbsentOn
  readonly #indexes: Record<Side, { documents: Buffer[] | null; positions: Map<IdentityKey, number> }> = {
    source: { documents: null, positions: new Map() },
    destination: { documents: null, positions: new Map() },
  }
  readonly #answers: Record<Side, { documents: Buffer[] | null; absent: ReadonlySet<IdentityKey> }> = {
    source: { documents: null, absent: new Set() },
    destination: { documents: null, absent: new Set() },
  }
  decided: Decided = nothingDecided()
  equal = 0

  constructor(absentOn: AbsentOn) {
    this.#absentOn = absentOn
  }

  /** Returns what was decided since the last call. */
  take(): Decided {
    const { decided } = this
    this.decided = nothingDecided()
    return decided
  }

  /** Decides documents until those of one side are used up, and advances `at` of both sides. */
  async align(undecided: Undecided): Promise<void> {
    const { source, destination } = undecided
    while (source.at < source.documents.length && destination.at < destination.documents.length) {
      const left = source.documents[source.at] as Buffer
      const right = destination.documents[destination.at] as Buffer
      const areEqual = left.equals(right)
      if (areEqual || keyOf(left) === keyOf(right)) {
        if (areEqual) this.equal += 1
        else this.#addDiffering(left)
        this.decided.lastCommon = left
        source.at += 1
        destination.at += 1
        continue
      }
      const onDestination = this.#positionOf('destination', left, destination)
      const onSource = this.#positionOf('source', right, source)
      // Only a change between the two reads can make both positions exist. Then the nearer one is used.
      if (onDestination !== null && (onSource === null || onDestination - destination.at <= onSource - source.at)) {
        while (destination.at < onDestination) this.#addDiffering(destination.documents[destination.at++] as Buffer)
      } else if (onSource !== null) {
        while (source.at < onSource) this.decided.missing.push(source.documents[source.at++] as Buffer)
      } else if (!(await this.#skipAbsent(undecided))) {
        // Both `_id`s exist on both sides, so one document was written after a read had passed the place of its `_id`.
        this.#addDiffering(left)
        this.#addDiffering(right)
        source.at += 1
        destination.at += 1
      }
    }
  }

  /** Decides the remaining documents of one side when the other side has no more documents in this range. */
  decideRemaining(side: Side, documents: Buffer[]): void {
    if (side === 'source') this.decided.missing.push(...documents)
    else for (const document of documents) this.#addDiffering(document)
  }

  #addDiffering(document: Buffer): void {
    this.decided.differing.push(idElementOf(document))
  }

  /** Returns the position of this document's `_id` in the batch of `side`; null if it is absent or already decided. */
  #positionOf(side: Side, document: Buffer, { documents, at }: Undecided[Side]): number | null {
    const index = this.#indexes[side]
    if (index.documents !== documents) {
      index.documents = documents
      index.positions = new Map(documents.map((one, position) => [keyOf(one), position]))
    }
    const position = index.positions.get(keyOf(document))
    return position === undefined || position < at ? null : position
  }

  /**
   * Decides the next documents of each side up to the first whose `_id` the other cluster has. Returns true if it
   * decided any.
   */
  async #skipAbsent({ source, destination }: Undecided): Promise<boolean> {
    const [missing, extra] = await Promise.all([
      this.#absentOf('source', 'destination', source),
      this.#absentOf('destination', 'source', destination),
    ])
    let skipped = false
    for (; isAbsent(source, missing); skipped = true) {
      this.decided.missing.push(source.documents[source.at++] as Buffer)
    }
    for (; isAbsent(destination, extra); skipped = true) {
      this.#addDiffering(destination.documents[destination.at++] as Buffer)
    }
    return skipped
  }

  /** Returns the `_id`s of the batch that the other cluster does not have. Asks that cluster once for each batch. */
  async #absentOf(side: Side, other: Side, { documents, at }: Undecided[Side]): Promise<ReadonlySet<IdentityKey>> {
    const answer = this.#answers[side]
    if (answer.documents !== documents) {
      answer.absent = await this.#absentOn(other, documents.slice(at).map(idElementOf))
      answer.documents = documents
    }
    return answer.absent
  }
}

function isAbsent({ documents, at }: Undecided[Side], absent: ReadonlySet<IdentityKey>): boolean {
  const document = documents[at]
  return document !== undefined && absent.has(keyOf(document))
}

function keyOf(document: Buffer): IdentityKey {
  return identityKey(idElementOf(document))
}

function nothingDecided(): Decided {
  return { missing: [], differing: [], lastCommon: null }
}
