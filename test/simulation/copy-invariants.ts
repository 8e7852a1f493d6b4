import { Binary, type Document } from 'mongodb'
import { toUuid } from '../../src/mongo/uuid.ts'
import { type Content, collectionUuid } from './content.ts'
import type { Network } from './network.ts'
import type { Sender } from './operations.ts'
import type { Process } from './process.ts'
import type { StoredCollection } from './stored-collection.ts'

interface CopyInvariantParts {
  content: Content
  destination: Network
  violated: (what: string) => void
}

/** Invariants of plans, segments and tombstones, and of the end of each collection's copy. */
export class CopyInvariants {
  readonly #parts: CopyInvariantParts
  /** Collections that are stored as copied. */
  readonly #copied = new Set<string>()

  constructor(parts: CopyInvariantParts) {
    this.#parts = parts
  }

  #stored(name: string): StoredCollection {
    return this.#parts.destination.server.collection(name)
  }

  #cataloged(uuid: string): Document | undefined {
    return this.#stored('collections').get(toUuid(uuid))
  }

  /** Returns whether the sender has claimed the segment to which this document belongs. */
  isCopiedBy({ token }: Sender, document: number): boolean {
    const uuid = this.#uuidOf(document)
    const own = this.#stored('segments').find({ collection: toUuid(uuid), owner: token })
    return own.some(({ from, to }) => document >= (idOf(from) ?? 0) && document < (idOf(to) ?? Infinity))
  }

  /**
   * Returns whether the document's tombstone is not yet reconciled. Until then the deleted document may exist on the
   * destination.
   */
  isToBeReconciled(document: number): boolean {
    const uuid = this.#uuidOf(document)
    const ended = this.#cataloged(uuid)?.['endedPartitions'] as number[] | undefined
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
      violated(`segment ${after['_id']} is planned again while it is being copied`)
    const coordinator = this.#stored('ownership').get('coordinator')?.['owner']
    if (sender.token !== coordinator)
      violated(`${sender.token} planned segment ${after['_id']} while ${coordinator} is the coordinator`)
  }

  #ended(sender: Sender, before: Document, after: Document): void {
    const { content, violated } = this.#parts
    const [former, now] = [before['endedPartitions'] as number[], after['endedPartitions'] as number[]]
    if (before['state'] !== after['state'] && now.length < content.partitions)
      violated(`${after['name']} is stored as copied by ${now.length} partitions`)
    for (const partition of now) {
      if (former.includes(partition)) continue
      const { owner, epoch } = this.#stored('ownership').get(partition) as Document
      // A former owner may end the copy until its successor has stored its own epoch, because the successor has changed nothing yet.
      if (owner !== sender.token && before[`epochs.${partition}`] === epoch)
        violated(`${sender.token} ended the copy of ${after['name']} for partition ${partition}, which ${owner} owns`)
      if (this.#isOpen(after))
        violated(`${after['name']} has its copy ended for partition ${partition} before it is copied`)
    }
  }

  /** Returns whether the collection is not planned, or one of its segments is not done. */
  #isOpen({ _id: collection, planned }: Document): boolean {
    return !planned || this.#stored('segments').find({ collection, done: false }, undefined, 1).length > 0
  }

  removed(sender: Sender, name: string, documents: Document[]): void {
    const { content, violated } = this.#parts
    for (const { collection } of documents) {
      const entry = this.#stored('collections').get(collection)
      if (name === 'segments' && entry?.['planned'])
        violated(`${sender.token} removed a plan of ${entry['name']} that is in use`)
      if (name === 'tombstones' && entry && entry['endedPartitions'].length < content.partitions)
        violated(`${sender.token} removed tombstones of ${entry['name']}, which not all partitions have reconciled`)
    }
  }

  /** No process may consider a collection copied before all of its segments are copied. */
  acted({ id, session }: Process): void {
    if (this.#copied.size === this.#parts.content.collections) return
    for (const entry of session.runs.latest?.catalog.entries() ?? []) {
      if (entry.state !== 'copied' || this.#copied.has(entry.uuid)) continue
      const stored = this.#cataloged(entry.uuid)
      if (!stored) continue
      if (stored['state'] === 'copied') this.#copied.add(entry.uuid)
      if (this.#isOpen(stored)) this.#parts.violated(`${id} considers ${entry.name} copied, which it is not`)
    }
  }

  #uuidOf(document: number): string {
    return collectionUuid('source', this.#parts.content.collectionOf(document))
  }
}

/** Returns the `_id` in a bound of a segment, which is a type byte and an int32. */
function idOf(bound: Binary | null): number | null {
  return bound ? Buffer.from(bound.buffer).readInt32LE(1) : null
}
