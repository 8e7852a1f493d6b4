/** Bytes of a document: `{_id: int32, v: int32}`, where `v` is its version. */
const documentBytes = 21
const idAt = 9
const versionAt = 16

/** Returns the UUID of a collection, given by its number, on one side. */
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

/** Place of an event that no stream shows yet. */
export const unpublished = Number.POSITIVE_INFINITY
/** Place of a version that existed before the sync began. */
const before = -1

/**
 * The documents of both clusters. Every change of a document on the source gives it the next version; a delete is also a version.
 * Documents are numbers. Each belongs permanently to one collection and one partition. Versions count from 1.
 */
export class Content {
  readonly count: number
  readonly collections: number
  readonly partitions: number
  /** The newest version of each document on the source. */
  readonly newest: Int32Array
  /** The version of each document on the destination; 0 if it is absent. */
  readonly onDestination: Int32Array
  /** For each document and version: the place of its event in the stream. */
  readonly published: number[][]
  readonly #deletions: number[][]
  /** Documents that a foreign write changed on the destination. No invariant applies to them until tandem writes them again. */
  readonly foreign = new Set<number>()

  constructor(count: number, collections: number, partitions: number) {
    this.count = count
    this.collections = collections
    this.partitions = partitions
    this.newest = new Int32Array(count)
    this.onDestination = new Int32Array(count)
    this.published = Array.from({ length: count }, () => [0])
    this.#deletions = Array.from({ length: count }, () => [0])
  }

  collectionOf(document: number): number {
    return document % this.collections
  }

  partitionOf(document: number): number {
    return (Math.imul(document, 0x9e3779b1) >>> 8) % this.partitions
  }

  /** Creates a document on the source before the sync begins, and on the destination if it is already copied. */
  preload(document: number, isCopied: boolean): void {
    this.newest[document] = 1
    if (isCopied) this.onDestination[document] = 1
    this.published[document]?.push(before)
  }

  exists(document: number): boolean {
    return this.#deletions[document]?.at(-1) !== this.newest[document]
  }

  /** Returns the version on the source; 0 if the document is absent. */
  onSource(document: number): number {
    return this.exists(document) ? (this.newest[document] as number) : 0
  }

  /** Changes or deletes a document on the source. Returns the new version. */
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

  /**
   * Returns the version up to which the destination has applied changes. An absent document may be the result of any
   * deletion, so the newest deletion counts.
   */
  reached(document: number): number {
    return (this.onDestination[document] as number) || (this.#deletions[document]?.at(-1) as number)
  }

  isEqual(document: number): boolean {
    return this.onDestination[document] === this.onSource(document)
  }

  different(): number[] {
    const found: number[] = []
    for (let document = 0; document < this.count; document++) if (!this.isEqual(document)) found.push(document)
    return found
  }
}
