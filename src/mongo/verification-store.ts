import { Binary, BSON } from 'mongodb'
import type { Cluster } from './cluster.ts'
import type { RetryContext } from './retry.ts'
import { StoredDocuments } from './stored-documents.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** A range of a collection that was read from both clusters and compared. */
export interface VerifiedRange {
  /** The collection's UUID on the source. */
  collection: string
  ordinal: number
  /** The number of documents read from each cluster. */
  source: number
  destination: number
  bytes: number
}

/** A document that must be compared before a verdict is issued. */
export interface StoredRecheck {
  uuid: string
  idElement: Buffer
  /** True if the source's change stream has reported a change of the document. */
  onSource: boolean
  /** True if the destination's change stream has reported a change of the document. */
  onDestination: boolean
  /**
   * Each time the recheck is stored, it gets a new token. A removal names the token, so a delayed removal does not remove
   * a recheck of the same document that was stored later. Null for a recheck that an earlier release stored.
   */
  token: string | null
}

/** The findings of the last verdict. */
export interface StoredVerdict {
  mismatches: unknown[]
  total: number
}

/** The largest number of collections in one filter. */
const collectionsMax = 100

/** Time limit in ms of a query whose result a client waits for. */
const answerMS = 5_000

/** The durable state of the embedded verifier, in the metadata database on the destination. */
export class VerificationStore {
  readonly #stored: StoredDocuments
  constructor(destination: Cluster, context: RetryContext) {
    this.#stored = new StoredDocuments(destination, context)
  }

  async loadRanges(): Promise<VerifiedRange[]> {
    const ranges: VerifiedRange[] = []
    for (const document of await this.#stored.find('verifiedRanges', {})) {
      ranges.push({
        collection: fromUuid(document['collection'] as Binary),
        ordinal: document['ordinal'] as number,
        source: document['source'] as number,
        destination: document['destination'] as number,
        bytes: document['bytes'] as number,
      })
    }
    return ranges
  }

  async saveRanges(ranges: VerifiedRange[]): Promise<void> {
    await this.#stored.update(
      'verifiedRanges',
      ranges.map(({ collection, ...range }) => ({
        q: { _id: `${hexOf(collection)}:${range.ordinal}` },
        u: {
          $set: { ...range, collection: toUuid(collection) },
          // A value above 1 shows that a finished range was read again, or that this write was repeated.
          $inc: { reads: 1 },
        },
        upsert: true,
      })),
    )
  }

  /** Removes all ranges of these collections. */
  async removeRanges(collections: string[]): Promise<void> {
    for (let from = 0; from < collections.length; from += collectionsMax) {
      // The filter uses `_id`, the only indexed field. The character ';' follows ':'.
      const $or = collections
        .slice(from, from + collectionsMax)
        .map((uuid) => ({ _id: { $gt: `${hexOf(uuid)}:`, $lt: `${hexOf(uuid)};` } }))
      await this.#stored.deleteAll('verifiedRanges', { $or })
    }
  }

  async saveRechecks(rechecks: StoredRecheck[]): Promise<void> {
    await this.#stored.update(
      'rechecks',
      rechecks.map((recheck) => ({
        q: { _id: recheckId(recheck) },
        // These fields are only set, never cleared: a change on either cluster stays known until the recheck is resolved.
        u: {
          $set: {
            ...(recheck.onSource ? { onSource: true } : {}),
            ...(recheck.onDestination ? { onDestination: true } : {}),
            token: recheck.token,
          },
        },
        upsert: true,
      })),
    )
  }

  async removeRechecks(rechecks: Pick<StoredRecheck, 'uuid' | 'idElement' | 'token'>[]): Promise<void> {
    await this.#stored.delete(
      'rechecks',
      // A filter for null also matches a document without the field.
      rechecks.map((recheck) => ({ q: { _id: recheckId(recheck), token: recheck.token }, limit: 1 })),
    )
  }

  /** Returns up to `limit` rechecks after the given one, in key order. */
  async readRechecks(after: StoredRecheck | null, limit: number): Promise<StoredRecheck[]> {
    const filter = after ? { _id: { $gt: recheckId(after) } } : {}
    const found: StoredRecheck[] = []
    for (const document of await this.#stored.find('rechecks', filter, { sort: { _id: 1 }, limit })) {
      const id = Buffer.from((document['_id'] as Binary).buffer)
      found.push({
        uuid: id.latin1Slice(0, 16),
        idElement: id.subarray(16),
        onSource: document['onSource'] === true,
        onDestination: document['onDestination'] === true,
        token: (document['token'] as string | undefined) ?? null,
      })
    }
    return found
  }

  /** Replaces the findings of the last verdict. */
  async saveVerdict(mismatches: object[], total: number): Promise<void> {
    // Even a majority write that changes nothing takes time, because it waits for the newest entry of the oplog.
    if (await this.#stored.findOne('mismatches', {})) await this.#stored.clear('mismatches')
    await this.#stored.update(
      'mismatches',
      mismatches.map((mismatch, index) => ({
        q: { _id: index },
        // Stored as text, because an `_id` in Extended JSON has field names that begin with a dollar sign.
        u: { mismatch: JSON.stringify(mismatch) },
        upsert: true,
      })),
    )
    await this.#stored.replace('verification', 'verdict', { total, savedAt: new Date() })
  }

  async loadVerdict(): Promise<StoredVerdict> {
    return await verdictFrom((collection, filter, extra) => this.#stored.find(collection, filter, extra))
  }

  /** Does what `loadVerdict` does, but retries nothing: a client waits for the answer, and can repeat the request. */
  async readVerdict(): Promise<StoredVerdict> {
    return await verdictFrom((collection, filter, extra) => this.#stored.findOnce(collection, filter, answerMS, extra))
  }

  /** Stores the figures of `progress.verification` at the verdict. */
  async saveReport(report: object): Promise<void> {
    await this.#stored.replace('verification', 'report', { report })
  }

  async loadReport(): Promise<unknown> {
    for (const document of await this.#stored.find('verification', { _id: 'report' })) return document['report']
    return null
  }

  /** Removes the compared ranges and the rechecks, so that every range is compared again. Keeps the last verdict. */
  async clearComparisons(): Promise<void> {
    for (const collection of ['verifiedRanges', 'rechecks']) await this.#stored.clear(collection)
  }
}

async function verdictFrom(find: StoredDocuments['find']): Promise<StoredVerdict> {
  const found = await find('mismatches', {}, { sort: { _id: 1 } })
  const [verdict] = await find('verification', { _id: 'verdict' })
  const mismatches = found.map((document): unknown => JSON.parse(document['mismatch'] as string))
  return { mismatches, total: (verdict?.['total'] as number | undefined) ?? 0 }
}

function hexOf(uuid: string): string {
  return Buffer.from(uuid, 'latin1').toString('hex')
}

function recheckId({ uuid, idElement }: Pick<StoredRecheck, 'uuid' | 'idElement'>): Binary {
  return new Binary(Buffer.concat([Buffer.from(uuid, 'latin1'), idElement]))
}

/** Returns the value of an `_id` element as canonical Extended JSON. */
export function renderId(idElement: Buffer): unknown {
  const document = Buffer.alloc(4 + idElement.length + 1)
  document.writeInt32LE(document.length, 0)
  idElement.copy(document, 4)
  const options = { promoteLongs: false, promoteValues: false, bsonRegExp: true }
  try {
    return BSON.EJSON.serialize(BSON.deserialize(document, options), { relaxed: false })['_id']
  } catch {
    // The server accepts values that js-bson rejects, such as a string that is not UTF-8.
    return { $bytes: idElement.toString('hex') }
  }
}

/** The largest number of characters of an `_id` in a message. An `_id` may be as large as a document. */
const describedMax = 256

/** Returns the value of an `_id` element as text for a message. */
export function describeId(idElement: Buffer): string {
  const text = JSON.stringify(renderId(idElement))
  return text.length > describedMax ? `${text.slice(0, describedMax)}… (${text.length} characters)` : text
}
