/**
 * A proven difference between the clusters, as `GET /api/v1/verification/mismatches` returns it. It never contains a
 * document value other than `_id`.
 */
export interface Mismatch {
  /** With the source's name of the database. */
  namespace: string
  /** Present in an answer if the database has another name on the destination. It is not stored. */
  destinationNamespace?: string
  kind: 'missing' | 'extra' | 'content' | 'index' | 'option' | 'collection'
  /** `_id` as canonical Extended JSON; absent for an index, an option and a collection. */
  id?: unknown
  /** Path of the first field that differs, or the name of an index or option. */
  field?: string
  /** The cause, if it can be inferred with certainty. */
  by?: 'sync' | 'foreignWrite'
}

/** Maximum number of differences that are listed. The others are only counted. */
export const listedMax = 1_000

/** The differences that remain after all rechecks: their number, and a function that lists them, which is expensive. */
export interface RecheckResult {
  total: number
  explain: () => Promise<Verdict>
}

export interface Verdict {
  mismatches: Mismatch[]
  /** Number of all differences, listed or not. */
  total: number
}
