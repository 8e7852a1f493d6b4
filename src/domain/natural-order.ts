import type { NaturalSelection } from './start-request.ts'

/**
 * Collections that are copied in natural order: in the order of their record ids, which is the order of the documents on
 * disk. If `_id`s are random, a read in `_id` order reads a page from disk for each document. A collection that does not
 * fit into memory is then read from disk many times.
 */

/** The progress of a segment that is read in natural order. The segment contains the whole collection. */
export interface NaturalRead {
  /** The `_id`s at which the verifier divides the collection into ranges. The copy does not use them. */
  splits: readonly Buffer[]
  /**
   * Identifies the server process that issued `tokens`, and its term as primary; null before the first read. Each member
   * of a replica set has record ids of its own, and a member may change them when it restarts or rolls back.
   */
  server: string | null
  /**
   * Resume tokens as BSON documents, newest first. All documents up to the position of a token are written and
   * acknowledged. Older tokens are kept because the server refuses a token whose document was deleted.
   */
  tokens: readonly Buffer[]
}

/** The database name in `copyInNaturalOrder` that stands for all databases, as in mongosync. */
export const everyDatabase = '.'
/** The number of tokens that are kept. The copy obtains one for each batch. */
export const tokensMax = 8
/** Maximum total size of the splits, because a single `_id` may have megabytes and the splits are stored in one document. */
const splitBytesMax = 1024 * 1024

/** True if the request asks for natural order of this collection. */
export function asksForNaturalOrder(
  selections: readonly NaturalSelection[] | null,
  database: string,
  name: string,
): boolean {
  return (selections ?? []).some(
    (one) => one.database === everyDatabase || (one.database === database && (one.collections?.includes(name) ?? true)),
  )
}

/** Returns the progress of a read that has not begun. */
export function beforeNaturalRead(splits: readonly Buffer[]): NaturalRead {
  const bytes = splits.reduce((sum, split) => sum + split.length, 0)
  const step = Math.max(1, Math.ceil(bytes / splitBytesMax))
  const kept = splits.filter((_, at) => at % step === step - 1)
  // If their sizes are very different, the splits may still exceed the limit. The verifier then compares a single range.
  const isSmall = kept.reduce((sum, split) => sum + split.length, 0) <= splitBytesMax
  return { splits: isSmall ? kept : [], server: null, tokens: [] }
}

/**
 * Returns the progress after all documents up to the position of `token` were acknowledged.
 * @param token null if the server gave no token for this position
 */
export function advanced(read: NaturalRead, token: Buffer | null): NaturalRead {
  return token ? { ...read, tokens: [token, ...read.tokens].slice(0, tokensMax) } : read
}

/** The ranges of `_id`s that a segment contains: one between its bounds, or those between the splits of a natural read. */
export function idRangesOf(segment: {
  from: Buffer | null
  to: Buffer | null
  natural: NaturalRead | null
}): { from: Buffer | null; to: Buffer | null }[] {
  const splits = segment.natural?.splits ?? []
  const bounds = [segment.from, ...splits, segment.to]
  return bounds.slice(1).map((to, at) => ({ from: bounds[at] ?? null, to }))
}

/** With fewer sampled documents than this, the order does not count as random. */
const sampleMin = 100
/**
 * An order counts as random if the mean distance between neighbours is above this share of the sample. In random order the
 * mean distance is a third of the sample, and in the order of the record ids it is close to 0.
 */
const randomDistanceMin = 1 / 6

/**
 * True if documents that are neighbours in `_id` order are far apart in natural order, so that a read in `_id` order
 * would access the disk at random. A reversed order is not random, and neither is an order of many ascending runs (such as
 * `_id`s that begin with a tenant), because neighbours are close.
 * @param recordIds the record ids of sampled documents, in the order of their `_id`s
 */
export function isRandomOrder(recordIds: readonly bigint[]): boolean {
  if (recordIds.length < sampleMin) return false
  const sorted = [...recordIds].sort((one, other) => (one < other ? -1 : one > other ? 1 : 0))
  const ranks = new Map(sorted.map((recordId, rank) => [recordId, rank]))
  let distance = 0
  for (let at = 1; at < recordIds.length; at++) {
    const [one, other] = [recordIds[at - 1] as bigint, recordIds[at] as bigint]
    distance += Math.abs((ranks.get(one) as number) - (ranks.get(other) as number))
  }
  return distance / (recordIds.length - 1) > randomDistanceMin * recordIds.length
}
