import { printable } from '../domain/printable.ts'

/** One difference between two clusters. It contains names but no values, except the `_id` of a document. */
export type Difference = { namespace: string } & (
  | { what: 'collection' | 'view'; how: 'missing' | 'extra' }
  | { what: 'type'; how: 'different' }
  | { what: 'option'; how: 'different'; option: string }
  | { what: 'index'; how: 'missing' | 'extra'; index: string }
  /** `field` is a field of the index specification. */
  | { what: 'index'; how: 'different'; index: string; field: string }
  /**
   * A shard that owns chunks of the collection lacks an index that other shards of the same cluster have, is still
   * building it, or has another specification of it.
   */
  | { what: 'shardIndex'; how: 'missing' | 'different'; index: string; cluster: string; shard: string }
  /** `id` is in canonical Extended JSON. */
  | { what: 'document'; how: 'missing' | 'extra'; id: string }
  /** `field` is the path of the first field that differs; empty if the bytes could not be read as BSON. */
  | { what: 'document'; how: 'different'; id: string; field: string }
  /** The first document out of order in a capped collection, whose insertion order is part of its content. */
  | { what: 'order'; how: 'different'; id: string }
)

/** Counts every difference and keeps the first ones: if a million documents are missing, a hundred show the problem. */
export class Differences {
  readonly list: Difference[] = []
  readonly #max: number
  #total = 0

  constructor(max: number) {
    this.#max = max
  }

  get total(): number {
    return this.#total
  }

  /** Calls `describe` only if the difference is kept, because decoding an `_id` costs more than finding a difference. */
  add(describe: () => Difference): void {
    this.#total += 1
    if (this.list.length < this.#max) this.list.push(describe())
  }
}

/** Returns one line of text, even if a name contains line breaks. Missing and extra refer to cluster1. */
export function differenceLine(difference: Difference): string {
  return printable(`${difference.namespace}: ${sentence(difference)}`)
}

function sentence(difference: Difference): string {
  const side = difference.how === 'missing' ? 'missing on cluster1' : 'only on cluster1'
  switch (difference.what) {
    case 'collection':
    case 'view':
      return `${difference.what} ${side}`
    case 'type':
      return 'a collection on one cluster and a view on the other'
    case 'option':
      return `option ${difference.option} differs`
    case 'index':
      return `index ${difference.index} ${difference.how === 'different' ? `differs in ${difference.field}` : side}`
    case 'shardIndex': {
      const { index, cluster, shard } = difference
      return `index ${index} ${difference.how === 'missing' ? 'missing' : 'differs'} on shard ${shard} of ${cluster}`
    }
    case 'document': {
      if (difference.how !== 'different') return `document ${difference.id} ${side}`
      return `document ${difference.id} differs${difference.field === '' ? '' : ` at ${difference.field}`}`
    }
    case 'order':
      return `natural order differs, starting at document ${difference.id}`
  }
}
