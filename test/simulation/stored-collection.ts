import { Binary, BSON, type Document, Long } from 'mongodb'
import { RawValue } from '../../src/mongo/raw-values.ts'
import { int32Of } from './wire.ts'

/** Result of a statement of a write command. */
export type Outcome = { matched: boolean; upserted: boolean; duplicate: boolean }

/** The server's time for `$$NOW`, as milliseconds. */
export type Now = () => number

interface Row {
  document: Document
  bytes: Buffer | null
}

/**
 * One collection of the metadata database in memory, with as much of the server's query and update language as tandem's
 * statements use. Anything else throws an error. Each statement is atomic, as it is for one document on a server.
 */
export class StoredCollection {
  readonly #rows = new Map<string, Row>()
  readonly #now: Now
  #latestMS = Number.NEGATIVE_INFINITY
  readonly #partitionOf: (id: number) => number

  constructor(now: Now, partitionOf: (id: number) => number = () => 0) {
    this.#now = now
    this.#partitionOf = partitionOf
  }

  /** Returns a function that restores the present documents. */
  snapshot(): () => void {
    const rows = [...this.#rows].map(([key, row]) => [key, { ...row }] as const)
    return () => {
      this.#rows.clear()
      for (const [key, row] of rows) this.#rows.set(key, row)
    }
  }

  get size(): number {
    return this.#rows.size
  }

  get(id: unknown): Document | undefined {
    return this.#rows.get(keyOf(id))?.document
  }

  documents(): Document[] {
    return [...this.#rows.values()].map(({ document }) => document)
  }

  find(filter: Document, sort?: Document, limit?: number): Document[] {
    return this.#find(filter, sort, limit).map(({ document }) => document)
  }

  /** Like `find`, but returns BSON. Each document is encoded once. */
  findRaw(filter: Document, sort?: Document, limit?: number): Buffer[] {
    return this.#find(filter, sort, limit).map((row) => {
      row.bytes ??= Buffer.from(BSON.serialize(row.document))
      return row.bytes
    })
  }

  #find(filter: Document, sort?: Document, limit = 0): Row[] {
    const found = this.#candidates(filter).filter(({ document }) => this.matches(document, filter))
    if (sort) found.sort((one, other) => inOrder(one.document, other.document, sort))
    return limit > 0 ? found.slice(0, limit) : found
  }

  #candidates(filter: Document): Row[] {
    const id = filter['_id']
    if (id === undefined || isOperators(id)) return [...this.#rows.values()]
    const row = this.#rows.get(keyOf(id))
    return row ? [row] : []
  }

  update({ q, u, upsert = false, multi = false }: Document): Outcome {
    const found = this.#find(q)
    for (const row of multi ? found : found.slice(0, 1)) {
      row.document = this.#changed(row.document, u, false)
      row.bytes = null
    }
    if (found.length > 0) return { matched: true, upserted: false, duplicate: false }
    if (!upsert) return { matched: false, upserted: false, duplicate: false }
    const fresh: Document = {}
    for (const [path, condition] of Object.entries(q)) if (!isOperators(condition)) fresh[path] = condition
    const document = this.#changed(fresh, u, true)
    const key = keyOf(document['_id'])
    if (this.#rows.has(key)) return { matched: false, upserted: false, duplicate: true }
    this.#rows.set(key, { document, bytes: null })
    return { matched: true, upserted: true, duplicate: false }
  }

  sorted(documents: Document[], sort: Document): Document[] {
    return documents.toSorted((one, other) => inOrder(one, other, sort))
  }

  /** Returns one document for each value of the `_id` expression, with the sums of fields or their first values. */
  group(documents: Document[], { _id: by, ...fields }: Document): Document[] {
    const groups = new Map<string, Document>()
    for (const document of documents) {
      const value = this.evaluate(document, by)
      const group = groups.get(keyOf(value)) ?? { _id: value }
      groups.set(keyOf(value), group)
      for (const [name, { $sum: summed, $first: first }] of Object.entries(fields)) {
        if (first !== undefined) group[name] ??= this.evaluate(document, first)
        else group[name] = (group[name] ?? 0) + Number(this.evaluate(document, summed) ?? 0)
      }
    }
    return [...groups.values()]
  }

  /** Returns the deleted documents. */
  delete({ q, limit }: Document): Document[] {
    const found = this.find(q, undefined, limit)
    for (const document of found) this.#rows.delete(keyOf(document['_id']))
    return found
  }

  matches(document: Document, filter: Document): boolean {
    return Object.entries(filter).every(([path, condition]) => {
      if (path === '$or') return (condition as Document[]).some((one) => this.matches(document, one))
      if (path === '$and') return (condition as Document[]).every((one) => this.matches(document, one))
      if (path === '$expr') return this.#isTrue(document, condition)
      const value = document[path]
      if (!isOperators(condition)) return holds(value, condition)
      return Object.entries(condition as Document).every(([operator, wanted]) => satisfies(value, operator, wanted))
    })
  }

  #isTrue(document: Document, expression: Document): boolean {
    const [operator, [left, right]] = Object.entries(expression)[0] as [string, [unknown, unknown]]
    // The only `$in` that tandem sends tests the partition: the absolute hash of the document's id modulo the number of partitions.
    if (operator === '$in') return (right as number[]).includes(this.#partitionOf(document['id']))
    if (operator !== '$lt') throw new Error(`unknown expression ${operator}`)
    return Number(this.evaluate(document, left)) < Number(this.evaluate(document, right))
  }

  /** Cluster time never goes back. As a date it has whole seconds. */
  #clusterTime(): Date {
    this.#latestMS = Math.max(this.#latestMS, Math.floor(this.#now() / 1_000) * 1_000)
    return new Date(this.#latestMS)
  }

  /** Evaluates an aggregation expression that leases and heartbeats use. Dates are compared as milliseconds. */
  evaluate(document: Document, expression: unknown): unknown {
    if (expression === '$$NOW') return new Date(this.#now())
    if (expression === '$$CLUSTER_TIME') return this.#clusterTime()
    if (typeof expression === 'string' && expression.startsWith('$')) return document[expression.slice(1)]
    if (!isOperators(expression)) return expression
    const [operator, given] = Object.entries(expression as Document)[0] as [string, unknown]
    if (operator === '$literal') return given
    if (operator === '$toDate') return this.evaluate(document, given)
    const [one, other, otherwise] = (given as unknown[]).map((part) => this.evaluate(document, part))
    switch (operator) {
      case '$add':
        return one instanceof Date ? new Date(one.getTime() + Number(other)) : Number(one) + Number(other)
      case '$subtract':
        return Number(one) - Number(other)
      case '$lt':
        return Number(one) < Number(other)
      case '$gte':
        return Number(one ?? Number.NEGATIVE_INFINITY) >= Number(other)
      case '$ifNull':
        return one ?? other
      case '$cond':
        return one ? other : otherwise
      default:
        throw new Error(`unknown expression ${operator}`)
    }
  }

  #changed(document: Document, update: Document | Document[], inserted: boolean): Document {
    if (Array.isArray(update)) return update.reduce((before, stage) => this.#staged(before, stage), document)
    if (!isOperators(update)) return { _id: document['_id'], ...update }
    const after = { ...document }
    for (const [operator, fields] of Object.entries(update)) {
      if (operator === '$setOnInsert' && !inserted) continue
      for (const [path, value] of Object.entries(fields as Document)) {
        // A field within a document is stored under its whole path, which only filters read.
        if (operator === '$set' || operator === '$setOnInsert') after[path] = plain(value)
        else if (operator === '$unset') delete after[path]
        else if (operator === '$max') after[path] = Math.max(after[path] ?? value, value)
        else if (operator === '$inc') after[path] = (after[path] ?? 0) + value
        else if (operator === '$currentDate') after[path] = value === true ? new Date(this.#now()) : this.#clusterTime()
        else if (operator === '$addToSet') after[path] = union(after[path] ?? [], value['$each'])
        else throw new Error(`unknown update ${operator}`)
      }
    }
    return after
  }

  #staged(document: Document, stage: Document): Document {
    const [operator, fields] = Object.entries(stage)[0] as [string, Document]
    if (operator === '$replaceWith') return this.evaluate(document, fields) as Document
    if (operator !== '$set') throw new Error(`unknown stage ${operator}`)
    const after = { ...document }
    for (const [path, expression] of Object.entries(fields)) after[path] = this.evaluate(document, expression)
    return after
  }
}

/** Decodes a value that is sent as BSON, which is always the `_id` of a document. */
function plain(value: unknown): unknown {
  return value instanceof RawValue ? int32Of(value) : value
}

function isOperators(value: unknown): boolean {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return false
  for (const name in value) return name.startsWith('$')
  return false
}

function holds(value: unknown, wanted: unknown): boolean {
  if (wanted === null) return value === null || value === undefined
  return keyOf(value) === keyOf(wanted)
}

function satisfies(value: unknown, operator: string, wanted: unknown): boolean {
  switch (operator) {
    case '$exists':
      return (value !== undefined) === wanted
    case '$ne':
      return !holds(value, wanted)
    case '$in':
      return (wanted as unknown[]).some((one) => holds(value, one))
    case '$lt':
      return value !== undefined && compare(value, wanted) < 0
    case '$lte':
      return value !== undefined && compare(value, wanted) <= 0
    case '$gt':
      return value !== undefined && compare(value, wanted) > 0
    case '$gte':
      return value !== undefined && compare(value, wanted) >= 0
    case '$size':
      return Array.isArray(value) && value.length === wanted
    case '$all':
      return (
        union((value as unknown[] | undefined) ?? [], wanted as unknown[]).length ===
        ((value as unknown[]) ?? []).length
      )
    case '$not':
      return !Object.entries(wanted as Document).every(([inner, one]) => satisfies(value, inner, one))
    case '$regex':
      return new RegExp(wanted as string).test(String(value))
    default:
      throw new Error(`unknown condition ${operator}`)
  }
}

function inOrder(one: Document, other: Document, sort: Document): number {
  for (const [path, direction] of Object.entries(sort)) {
    const difference = compare(one[path], other[path])
    if (difference !== 0) return difference * direction
  }
  return 0
}

function union(one: unknown[], other: unknown[]): unknown[] {
  const known = new Set(one.map(keyOf))
  return [...one, ...other.filter((value) => !known.has(keyOf(value)))]
}

function compare(one: unknown, other: unknown): number {
  if (one instanceof Binary && other instanceof Binary) return Buffer.compare(bytes(one), bytes(other))
  if (one instanceof Long && other instanceof Long) return one.compare(other)
  const [left, right] = [one as number, other as number]
  return left < right ? -1 : left > right ? 1 : 0
}

/** Returns the same text for values that the server considers equal, for the types in tandem's metadata. */
function keyOf(value: unknown): string {
  if (typeof value === 'string') return `s${value}`
  if (typeof value !== 'object' || value === null) return String(value)
  if (value instanceof Binary) return `b${bytes(value).latin1Slice()}`
  if (value instanceof Date) return `d${value.getTime()}`
  if (value instanceof Long) return value.toString()
  return `o${Object.entries(value)
    .map(([name, one]) => `${name}=${keyOf(one)}`)
    .join()}`
}

function bytes(value: Binary): Buffer {
  return Buffer.from(value.buffer.buffer, value.buffer.byteOffset, value.position)
}
