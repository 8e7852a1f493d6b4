/** Bytes of a document: `{_id: int32, v: int32}`, where `v` is its version. */
const documentBytes = 21
const idAt = 9
const versionAt = 16

/** Collections of the simulated source, by number. */
export function collectionUuid(side: 'source' | 'destination', collection: number): string {
  const bytes = Buffer.alloc(16, side === 'source' ? 0xaa : 0xbb)
  bytes.writeUInt32LE(collection + 1, 0)
  return bytes.latin1Slice()
}

export function encodeDocument(document: number, version: number): Buffer {
  const bytes = Buffer.allocUnsafe(documentBytes)
  template.copy(bytes)
  bytes.writeInt32LE(document, idAt)
  bytes.writeInt32LE(version, versionAt)
  return bytes
}

export function versionOf(bytes: Buffer): number {
  return bytes.readInt32LE(versionAt)
}

const template = Buffer.from([
  documentBytes,
  0,
  0,
  0,
  0x10,
  ...Buffer.from('_id\0'),
  0,
  0,
  0,
  0,
  0x10,
  ...Buffer.from('v\0'),
  0,
  0,
  0,
  0,
  0,
])

/** Where an event stands that no stream shows yet. */
export const unpublished = Number.POSITIVE_INFINITY
/** Of what stood there before the sync began. */
const before = -1

/**
 * What both clusters hold. Every change of a document on the source gives it the next version; a delete is a version too.
 * Documents are numbers, each of one collection and of one partition for good; versions count from 1.
 */
export class Content {
  readonly count: number
  readonly collections: number
  readonly partitions: number
  /** The newest version of each on the source. */
  readonly newest: Int32Array
  /** The version that stands on the destination; 0 where none does. */
  readonly standing: Int32Array
  /** Of each document and version: where its event stands in the stream. */
  readonly published: number[][]
  readonly #deletions: number[][]
  /** Changed on the destination by somebody else, so that it follows no rule until it is written again. */
  readonly foreign = new Set<number>()

  constructor(count: number, collections: number, partitions: number) {
    this.count = count
    this.collections = collections
    this.partitions = partitions
    this.newest = new Int32Array(count)
    this.standing = new Int32Array(count)
    this.published = Array.from({ length: count }, () => [0])
    this.#deletions = Array.from({ length: count }, () => [0])
  }

  collectionOf(document: number): number {
    return document % this.collections
  }

  partitionOf(document: number): number {
    return (Math.imul(document, 0x9e3779b1) >>> 8) % this.partitions
  }

  /** It stands on the source before the sync begins, and where it is copied already on the destination. */
  plant(document: number, isCopied: boolean): void {
    this.newest[document] = 1
    if (isCopied) this.standing[document] = 1
    this.published[document]?.push(before)
  }

  exists(document: number): boolean {
    return this.#deletions[document]?.at(-1) !== this.newest[document]
  }

  /** The version that stands on the source; 0 where none does. */
  onSource(document: number): number {
    return this.exists(document) ? (this.newest[document] as number) : 0
  }

  /** Returns the new version. */
  change(document: number, deletes: boolean): number {
    const version = (this.newest[document] as number) + 1
    this.newest[document] = version
    this.published[document]?.push(unpublished)
    if (deletes) this.#deletions[document]?.push(version)
    return version
  }

  isDeletion(document: number, version: number): boolean {
    return this.#deletions[document]?.includes(version) ?? false
  }

  /** Up to which version the destination is made equal: what is absent may be any deletion, so the newest. */
  reached(document: number): number {
    return (this.standing[document] as number) || (this.#deletions[document]?.at(-1) as number)
  }

  isEqual(document: number): boolean {
    return this.standing[document] === this.onSource(document)
  }

  different(): number[] {
    const found: number[] = []
    for (let document = 0; document < this.count; document++) if (!this.isEqual(document)) found.push(document)
    return found
  }
}
