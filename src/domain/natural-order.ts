import type { NaturalSelection } from './start-request.ts'

/**
 * Collections that are copied in natural order: in the order of their record ids, which is the order of the documents on
 * disk. If `_id`s are random, a read in `_id` order reads a page of the disk for each document, and so reads a collection
 * that does not fit into memory many times over.
 */

/** The progress of a segment that is read in natural order. The segment contains the whole collection. */
export interface NaturalRead {
  /**
   * The `_id`s at which the verifier divides the collection into ranges. The copy does not use them.
   */
  splits: readonly Buffer[]
  /**
   * The server process, and its term as primary, to which `tokens` belong; null before the first read. Each member of a
   * replica set has record ids of its own, and a member may assign others when it starts again or rolls back.
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
/** The number of tokens that are kept. Between two of them is a batch of the copy. */
export const tokensMax = 8
/** Limits the size of the stored document, because a single `_id` may have megabytes. */
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
  // Splits of very different sizes may still exceed the limit. Then the verifier compares one range.
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

/** The ranges of `_id`s that a segment contains: its own bounds, or those of the ranges of a read in natural order. */
export function idRangesOf(segment: {
  from: Buffer | null
  to: Buffer | null
  natural: NaturalRead | null
}): { from: Buffer | null; to: Buffer | null }[] {
  const splits = segment.natural?.splits ?? []
  const bounds = [segment.from, ...splits, segment.to]
  return bounds.slice(1).map((to, at) => ({ from: bounds[at] ?? null, to }))
}

/** With fewer sampled documents than this, nothing is concluded. */
const sampleMin = 100
/**
 * The mean distance between neighbours, as a share of the sample, above which an order counts as random. Random order
 * has a third, and an order that follows the record ids has almost nothing.
 */
const randomDistanceMin = 1 / 6

/**
 * Decides whether a read in `_id` order would jump at random over the disk: whether documents that are neighbours in
 * `_id` order are far apart in natural order. An order that is reversed, or that consists of many ascending runs (such
 * as `_id`s that begin with a tenant), is not random, because neighbours are close.
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
