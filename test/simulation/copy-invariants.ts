import { Binary, type Document } from 'mongodb'
import { toUuid } from '../../src/mongo/uuid.ts'
import { type Content, collectionUuid } from './content.ts'
import type { Network, Sender } from './network.ts'
import type { Process } from './process.ts'
import type { StoredCollection } from './stored-collection.ts'

interface CopyInvariantParts {
  content: Content
  destination: Network
  violated: (what: string) => void
}

/** What must hold while collections are copied: of their plans, their segments, their tombstones and the end of their copy. */
export class CopyInvariants {
  readonly #parts: CopyInvariantParts
  /** Collections whose copy is stored as over. */
  readonly #over = new Set<string>()

  constructor(parts: CopyInvariantParts) {
    this.#parts = parts
  }

  #stored(name: string): StoredCollection {
    return this.#parts.destination.server.collection(name)
  }

  #catalogued(uuid: string): Document | undefined {
    return this.#stored('collections').get(toUuid(uuid))
  }

  /** The sender has claimed the segment to which this document belongs. */
  isCopiedBy({ token }: Sender, document: number): boolean {
    const uuid = this.#uuidOf(document)
    const own = this.#stored('segments').find({ collection: toUuid(uuid), owner: token })
    return own.some(({ from, to }) => document >= (idOf(from) ?? 0) && document < (idOf(to) ?? Infinity))
  }

  /** Its tombstone is still to be reconciled, so it may stand there for a while though it is deleted. */
  isToBeReconciled(document: number): boolean {
    const uuid = this.#uuidOf(document)
    const ended = this.#catalogued(uuid)?.['endedPartitions'] as number[] | undefined
    if (!ended || ended.includes(this.#parts.content.partitionOf(document))) return false
    const element = Buffer.from([0x10, ...Buffer.from('_id\0'), 0, 0, 0, 0])
    element.writeInt32LE(document, 5)
    return (
      this.#stored('tombstones').get(new Binary(Buffer.concat([Buffer.from(uuid, 'latin1'), element]))) !== undefined
    )
  }

  stored(sender: Sender, collection: string, before: Document | undefined, after: Document): void {
    if (collection === 'segments') this.#planned(sender, before, after)
    if (collection === 'collections' && before) this.#ended(sender, before, after)
  }

  #planned(sender: Sender, before: Document | undefined, after: Document): void {
    const { violated } = this.#parts
    if (before?.['claimable'] === after['claimable'] && before?.['term'] === after['term']) return
    if (before?.['claimable'] && !after['claimable'])
      violated(`segment ${after['_id']} is planned again while it is copied`)
    const coordinator = this.#stored('ownership').get('coordinator')?.['owner']
    if (sender.token !== coordinator)
      violated(`${sender.token} planned segment ${after['_id']} while ${coordinator} coordinates`)
  }

  #ended(sender: Sender, before: Document, after: Document): void {
    const { content, violated } = this.#parts
    const [former, now] = [before['endedPartitions'] as number[], after['endedPartitions'] as number[]]
    if (before['state'] !== after['state'] && now.length < content.partitions)
      violated(`${after['name']} is stored as copied by ${now.length} partitions`)
    for (const partition of now) {
      if (former.includes(partition)) continue
      const { owner, epoch } = this.#stored('ownership').get(partition) as Document
      // Until its successor has claimed the copy, what a former owner says of it is as true as it was.
      if (owner !== sender.token && before[`epochs.${partition}`] === epoch)
        violated(`${sender.token} ended the copy of ${after['name']} for partition ${partition}, which is ${owner}'s`)
      if (this.#isOpen(after)) violated(`${after['name']} is ended for partition ${partition} before it is copied`)
    }
  }

  /** Not planned, or one of its segments is not done. */
  #isOpen({ _id: collection, planned }: Document): boolean {
    return !planned || this.#stored('segments').find({ collection, done: false }, undefined, 1).length > 0
  }

  removed(sender: Sender, name: string, documents: Document[]): void {
    const { content, violated } = this.#parts
    for (const { collection } of documents) {
      const entry = this.#stored('collections').get(collection)
      if (name === 'segments' && entry?.['planned'])
        violated(`${sender.token} removed a plan of ${entry['name']} in use`)
      if (name === 'tombstones' && entry && entry['endedPartitions'].length < content.partitions)
        violated(`${sender.token} removed tombstones of ${entry['name']}, which not all have reconciled`)
    }
  }

  /** Nothing counts as copied, in any process, before all of its segments are. */
  acted({ id, work }: Process): void {
    if (this.#over.size === this.#parts.content.collections) return
    for (const entry of work.runs.latest?.catalogue.entries() ?? []) {
      if (entry.state !== 'copied' || this.#over.has(entry.uuid)) continue
      const stored = this.#catalogued(entry.uuid)
      if (!stored) continue
      if (stored['state'] === 'copied') this.#over.add(entry.uuid)
      if (this.#isOpen(stored)) this.#parts.violated(`${id} takes ${entry.name} for copied, which it is not`)
    }
  }

  #uuidOf(document: number): string {
    return collectionUuid('source', this.#parts.content.collectionOf(document))
  }
}

/** Of a bound of a segment: a type byte and an int32. */
function idOf(bound: Binary | null): number | null {
  return bound ? Buffer.from(bound.buffer).readInt32LE(1) : null
}
