import type { Random } from '../support/random.ts'
import type { Clock } from './clock.ts'
import type { Content } from './content.ts'
import type { Logged } from './event-log.ts'
import type { Server } from './server.ts'
import type { Shards } from './shards.ts'

const tickMS = 20

/**
 * The application on the source. It often changes the same few documents, sometimes several of them in one transaction.
 * Sometimes it creates or drops an index.
 */
export class Workload {
  stopped = false
  readonly #clock: Clock
  readonly #random: Random
  readonly #content: Content
  readonly #source: Server
  readonly #shards: Shards
  readonly #rate: number
  readonly #definitionRate: number
  #debt = 0
  #names = 0
  /** DDL that no stream shows yet, in order. */
  readonly defined: { collection: number; name: string; creates: boolean }[] = []

  constructor(parts: {
    clock: Clock
    random: Random
    content: Content
    source: Server
    shards: Shards
    /** Changes a second. */
    rate: number
    definitionRate: number
  }) {
    this.#clock = parts.clock
    this.#random = parts.random
    this.#content = parts.content
    this.#source = parts.source
    this.#shards = parts.shards
    this.#rate = parts.rate
    this.#definitionRate = parts.definitionRate
  }

  begin(): void {
    this.#clock.after(tickMS, null, () => this.#tick(), false)
  }

  #tick(): void {
    if (this.stopped) return
    this.begin()
    // The rate rises and falls, so that batches of all sizes occur.
    const wave = 1 + Math.sin(this.#clock.now / 3_000)
    this.#debt += (this.#rate * wave * tickMS) / 1_000
    for (; this.#debt >= 1; this.#debt -= 1) this.#write()
    if (this.#random.chance((this.#definitionRate * tickMS) / 1_000)) this.#define()
    if (this.#random.chance(0.05)) this.#shards.move(this.#document())
  }

  #document(): number {
    const few = this.#random.chance(0.5)
    return this.#random.int(0, (few ? Math.ceil(this.#content.count / 20) : this.#content.count) - 1)
  }

  #write(): void {
    this.#clock.steps += 1
    const count = this.#random.chance(0.03) ? this.#random.int(2, 5) : 1
    const several = new Set(Array.from({ length: count }, () => this.#document()))
    this.#shards.writeTogether([...several].map((document) => this.#change(document)))
  }

  #change(document: number): Omit<Logged, 'second' | 'ordinal'> {
    const existed = this.#content.exists(document)
    const deletes = existed && this.#random.chance(0.2)
    const version = this.#content.change(document, deletes)
    const kind = deletes ? 'delete' : !existed ? 'insert' : this.#random.chance(0.4) ? 'replace' : 'update'
    return { kind, collection: this.#content.collectionOf(document), document, version }
  }

  #define(): void {
    const collection = this.#random.int(0, this.#content.collections - 1)
    const indexes = this.#source.indexes[collection] as Map<string, unknown>
    const creates = indexes.size === 0 || (indexes.size < 4 && this.#random.chance(0.6))
    const name = creates ? `by_${this.#names++}` : (this.#random.pick([...indexes.keys()]) as string)
    if (creates) this.#source.indexes[collection]?.set(name, { v: 2, key: { [name]: 1 }, name })
    else indexes.delete(name)
    this.defined.push({ collection, name, creates })
    this.#shards.write({ kind: creates ? 'createIndexes' : 'dropIndexes', collection, document: -1, version: 0 })
  }
}
