import { printable } from '../domain/printable.ts'
/** One thing in which two clusters differ. It names; it never quotes, but for the `_id` of a document. */
export type Difference = { namespace: string } & (
  | { what: 'collection' | 'view'; how: 'missing' | 'extra' }
  | { what: 'type'; how: 'different' }
  | { what: 'option'; how: 'different'; option: string }
  | { what: 'index'; how: 'missing' | 'extra'; index: string }
  /** `field`: of the index's specification. */
  | { what: 'index'; how: 'different'; index: string; field: string }
  /** `id`: canonical extended JSON. */
  | { what: 'document'; how: 'missing' | 'extra'; id: string }
  /** `field`: the first that differs, dotted; empty when the bytes could not be read as BSON. */
  | { what: 'document'; how: 'different'; id: string; field: string }
  /** The first document out of order in a capped collection, where insertion order is content. */
  | { what: 'order'; how: 'different'; id: string }
)

/** Counts every difference and keeps the first ones: when a million documents are missing, a hundred of them tell it. */
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

  /** `describe` is called only for a difference that is kept: decoding an `_id` costs more than finding it. */
  add(describe: () => Difference): void {
    this.#total += 1
    if (this.list.length < this.#max) this.list.push(describe())
  }
}

/** One line for people, without a line break whatever the names hold. Missing and extra are seen from cluster1. */
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
    case 'document': {
      if (difference.how !== 'different') return `document ${difference.id} ${side}`
      return `document ${difference.id} differs${difference.field === '' ? '' : ` at ${difference.field}`}`
    }
    case 'order':
      return `natural order differs from document ${difference.id} on`
  }
}
