/**
 * A proven difference between both clusters, as `GET /api/v1/verification/mismatches` names it. Never a value of a
 * document other than its `_id`.
 */
export interface Mismatch {
  namespace: string
  kind: 'missing' | 'extra' | 'content' | 'index' | 'option' | 'collection'
  /** `_id` as canonical Extended JSON; for an index or an option its name stands in `field`. */
  id?: unknown
  /** Path of the first field that differs, or the name of an index or option. */
  field?: string
  /** Who caused it, as far as that can be inferred; absent when it is not certain. */
  by?: 'sync' | 'foreignWrite'
}

/** Differences that are listed one by one; beyond them only the total is known. */
export const listedMax = 1_000

/** What is left after everything was compared again and again: how much, and (at a cost) what. */
export interface Settlement {
  total: number
  explain: () => Promise<Verdict>
}

export interface Verdict {
  mismatches: Mismatch[]
  /** All of them, listed or not. */
  total: number
}
