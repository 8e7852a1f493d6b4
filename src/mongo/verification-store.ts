import { Binary, BSON, type Document } from 'mongodb'
import { metadataDatabase } from '../domain/namespace.ts'
import { type Cluster, RawCursor } from './cluster.ts'
import { metadataVersion } from './metadata.ts'
import { type RetryContext, retry } from './retry.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** A range of a collection that was read from both clusters and compared. */
export interface VerifiedRange {
  /** The collection's UUID on the source. */
  collection: string
  ordinal: number
  /** Documents read. */
  source: number
  destination: number
  bytes: number
}

/** A document that is to be compared before any verdict. */
export interface StoredRecheck {
  uuid: string
  idElement: Buffer
  /** Changed on this cluster, as its stream has it. */
  onSource: boolean
  onDestination: boolean
}

const statementsMax = 500

/** The embedded verifier's durable state, in tandem's own database on the destination, majority-acknowledged. */
export class VerificationStore {
  readonly #cluster: Cluster
  readonly #context: RetryContext
  constructor(destination: Cluster, context: RetryContext) {
    this.#cluster = destination
    this.#context = context
  }

  async loadRanges(): Promise<VerifiedRange[]> {
    const ranges: VerifiedRange[] = []
    for await (const document of this.#find('verifiedRanges', {})) {
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
    await this.#updateAll(
      'verifiedRanges',
      ranges.map(({ collection, ...range }) => ({
        q: { _id: `${Buffer.from(collection, 'latin1').toString('hex')}:${range.ordinal}` },
        u: {
          $set: { ...range, collection: toUuid(collection), schemaVersion: metadataVersion },
          // 1, or a restart has read again what was done.
          $inc: { reads: 1 },
        },
        upsert: true,
      })),
    )
  }

  async saveRechecks(rechecks: StoredRecheck[]): Promise<void> {
    await this.#updateAll(
      'rechecks',
      rechecks.map((recheck) => ({
        q: { _id: recheckId(recheck) },
        // Marks are only ever added: what was seen on either side stays known until it is settled.
        u: {
          $set: {
            schemaVersion: metadataVersion,
            ...(recheck.onSource ? { onSource: true } : {}),
            ...(recheck.onDestination ? { onDestination: true } : {}),
          },
        },
        upsert: true,
      })),
    )
  }

  async removeRechecks(rechecks: Pick<StoredRecheck, 'uuid' | 'idElement'>[]): Promise<void> {
    await this.#eachPart(rechecks, (part) => ({
      delete: 'rechecks',
      deletes: part.map((recheck) => ({ q: { _id: recheckId(recheck) }, limit: 1 })),
      ordered: false,
    }))
  }

  /** Up to `limit` rechecks after the given one, in the order of their keys. */
  async readRechecks(after: StoredRecheck | null, limit: number): Promise<StoredRecheck[]> {
    const filter = after ? { _id: { $gt: recheckId(after) } } : {}
    const found: StoredRecheck[] = []
    for await (const document of this.#find('rechecks', filter, { sort: { _id: 1 }, limit })) {
      const id = Buffer.from((document['_id'] as Binary).buffer)
      found.push({
        uuid: id.latin1Slice(0, 16),
        idElement: id.subarray(16),
        onSource: document['onSource'] === true,
        onDestination: document['onDestination'] === true,
      })
    }
    return found
  }

  /** Replaces what the last verdict found. */
  async saveVerdict(mismatches: object[], total: number): Promise<void> {
    await this.#send({ delete: 'mismatches', deletes: [{ q: {}, limit: 0 }] })
    await this.#updateAll(
      'mismatches',
      mismatches.map((mismatch, index) => ({
        q: { _id: index },
        // As text: an `_id` in Extended JSON has names that begin with a dollar sign.
        u: { mismatch: JSON.stringify(mismatch), schemaVersion: metadataVersion },
        upsert: true,
      })),
    )
    await this.#updateAll('verification', [
      { q: { _id: 'verdict' }, u: { total, savedAt: new Date(), schemaVersion: metadataVersion }, upsert: true },
    ])
  }

  async loadVerdict(): Promise<{ mismatches: unknown[]; total: number }> {
    const mismatches: unknown[] = []
    for await (const document of this.#find('mismatches', {}, { sort: { _id: 1 } })) {
      mismatches.push(JSON.parse(document['mismatch'] as string))
    }
    let total = 0
    for await (const document of this.#find('verification', { _id: 'verdict' })) total = document['total'] as number
    return { mismatches, total }
  }

  /** The figures of `progress.verification` at the verdict. */
  async saveReport(report: object): Promise<void> {
    await this.#updateAll('verification', [
      { q: { _id: 'report' }, u: { report, schemaVersion: metadataVersion }, upsert: true },
    ])
  }

  async loadReport(): Promise<unknown> {
    for await (const document of this.#find('verification', { _id: 'report' })) return document['report']
    return null
  }

  /** Nothing has been compared. */
  async forget(): Promise<void> {
    for (const collection of ['verifiedRanges', 'rechecks']) {
      await this.#send({ delete: collection, deletes: [{ q: {}, limit: 0 }] })
    }
  }

  async *#find(collection: string, filter: Document, extra: Document = {}): AsyncGenerator<Document> {
    const documents = await retry(`reading ${metadataDatabase}.${collection}`, this.#context, async () => {
      const cursor = await RawCursor.open(this.#cluster, metadataDatabase, {
        find: collection,
        filter,
        ...extra,
        readConcern: { level: 'majority' },
      })
      try {
        const read: Document[] = []
        for (let batch = await cursor.next(); batch; batch = await cursor.next()) {
          for (const bytes of batch.documents) read.push(BSON.deserialize(bytes))
        }
        return read
      } finally {
        await cursor.close()
      }
    })
    yield* documents
  }

  async #updateAll(collection: string, updates: Document[]): Promise<void> {
    await this.#eachPart(updates, (part) => ({ update: collection, updates: part, ordered: false }))
  }

  async #eachPart<T>(all: T[], command: (part: T[]) => Document): Promise<void> {
    for (let from = 0; from < all.length; from += statementsMax) {
      await this.#send(command(all.slice(from, from + statementsMax)))
    }
  }

  async #send(command: Document): Promise<void> {
    await retry('writing verification state', this.#context, async () => {
      const reply = await this.#cluster.write(metadataDatabase, { ...command })
      const [failed] = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
      if (failed) throw new Error(`writing verification state: server error ${failed.code}`)
    })
  }
}

function recheckId({ uuid, idElement }: Pick<StoredRecheck, 'uuid' | 'idElement'>): Binary {
  return new Binary(Buffer.concat([Buffer.from(uuid, 'latin1'), idElement]))
}

/** The `_id` of an `_id` element as canonical Extended JSON. */
export function renderId(idElement: Buffer): unknown {
  const document = Buffer.alloc(4 + idElement.length + 1)
  document.writeInt32LE(document.length, 0)
  idElement.copy(document, 4)
  const options = { promoteLongs: false, promoteValues: false, bsonRegExp: true }
  return BSON.EJSON.serialize(BSON.deserialize(document, options), { relaxed: false })['_id']
}
