import { Binary, type Document } from 'mongodb'
import type { Segment } from '../domain/catalogue.ts'
import type { OwnerToken } from '../domain/owner.ts'
import { parseOwner } from '../domain/owner.ts'
import { notOfLater, type StoredDocuments } from './stored-documents.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** UUIDs in one `$in`. */
const uuidsMax = 500
/** Candidates looked at for one claim beyond those wanted: others claim at the same time. */
const spare = 8

/** The segments of the copy, each claimed by one instance: collection `segments` of the metadata database. */
export class SegmentStore {
  readonly #stored: StoredDocuments
  readonly #term: () => number

  /** @param term the coordinator's: what a later one has planned, an earlier one neither removes nor replaces nor opens */
  constructor(stored: StoredDocuments, term: () => number = () => 0) {
    this.#stored = stored
    this.#term = term
  }

  /**
   * Stores a plan, in the order of whose ranks segments are claimed; by nobody before `open`. Were they claimed at once, a plan
   * that a crash cut short would be made again while others still copy its ranges, and insert after the copy has ended.
   */
  async plan(segments: Segment[]): Promise<void> {
    const term = this.#term()
    await this.#stored.updateFenced(
      'segments',
      segments.map((segment) => ({
        q: { _id: keyOf(segment), term: notOfLater(term) },
        u: {
          term,
          ...progressOf(segment),
          ...boundsOf(segment),
          claimable: false,
          owner: null,
          ownerID: null,
          previousID: null,
          claim: 0,
        },
        upsert: true,
      })),
    )
  }

  /** The plan of these collections is on record, and will not be made again: their segments may be claimed. */
  async open(uuids: string[]): Promise<void> {
    for (let from = 0; from < uuids.length; from += uuidsMax) {
      const collections = uuids.slice(from, from + uuidsMax).map(toUuid)
      const q = { collection: { $in: collections }, claimable: { $ne: true }, term: notOfLater(this.#term()) }
      await this.#stored.update('segments', [{ q, u: { $set: { claimable: true } }, multi: true }])
    }
  }

  /**
   * Stores how far segments are; one that is not this owner's any more, or by another claim (of a collection that was cut anew,
   * where it is another range), or gone with its collection, is left alone.
   */
  async note(segments: Segment[], owner: OwnerToken): Promise<void> {
    await this.#stored.update(
      'segments',
      segments.map((segment) => ({
        q: { _id: keyOf(segment), owner, claim: segment.claim },
        u: { $set: progressOf(segment) },
      })),
    )
  }

  /**
   * Claims up to `limit` open segments that nobody owns, or whose owner is dead. They come back as stored: a segment
   * taken over goes on after the last `_id` that its former owner had acknowledged.
   * @param claim a number of this owner's that no earlier claim of it had
   */
  async claim(
    owner: OwnerToken,
    claim: number,
    limit: number,
    isDead: (owner: OwnerToken) => boolean,
  ): Promise<Segment[]> {
    const owners = await this.#openOwners()
    const claimable = { done: false, claimable: true, owner: { $in: [null, ...owners.filter(isDead)] } }
    const candidates = await this.#stored.find('segments', claimable, {
      sort: { rank: 1 },
      limit: limit + spare,
      projection: { _id: 1, schemaVersion: 1 },
    })
    if (candidates.length === 0) return []
    // Of more candidates than wanted, so that instances claiming at the same moment do not all go for the same ones.
    const chosen =
      candidates.length > limit
        ? candidates.slice(claim % 2 === 0 ? 0 : candidates.length - limit).slice(0, limit)
        : candidates
    const ids = chosen.map((candidate) => candidate['_id'])
    await this.#stored.update('segments', [
      {
        q: { _id: { $in: ids }, ...claimable },
        // Literal: in a pipeline a text that begins with `$` would be taken for the name of a field.
        u: [{ $set: { previousID: '$ownerID', owner: literal(owner), ownerID: literal(parseOwner(owner).id), claim } }],
        multi: true,
      },
    ])
    const claimed = await this.#stored.find('segments', { owner, claim, done: false }, { sort: { rank: 1 } })
    return claimed.map(toSegment)
  }

  /**
   * Gives open segments back, each as far as it is.
   * @param lastClaim what is claimed later is not given back, by a message that comes late: it is being copied then
   */
  async release(owner: OwnerToken, lastClaim: number): Promise<void> {
    const q = { owner, done: false, claim: { $lte: lastClaim } }
    await this.#stored.update('segments', [{ q, u: { $set: { owner: null } }, multi: true }])
  }

  /** UUIDs of collections that have open segments. */
  async openCollections(): Promise<Set<string>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { done: false } },
      { $group: { _id: '$collection' } },
    ])
    return new Set(groups.map((group) => fromUuid(group['_id'] as Binary)))
  }

  /** Bytes copied of each collection by instances with the given id. */
  async bytesBy(id: string): Promise<Map<string, number>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { ownerID: id } },
      { $group: { _id: '$collection', bytes: { $sum: '$bytes' } } },
    ])
    return new Map(groups.map((group) => [fromUuid(group['_id'] as Binary), Number(group['bytes'])]))
  }

  /** Bytes copied by each instance, by mongosyncID. */
  async bytesByInstance(): Promise<Map<string, number>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { ownerID: { $ne: null } } },
      { $group: { _id: '$ownerID', bytes: { $sum: '$bytes' } } },
    ])
    return new Map(groups.map((group) => [group['_id'] as string, Number(group['bytes'])]))
  }

  /** Bytes copied of each of these collections that has segments. */
  async bytesOf(uuids: string[]): Promise<Map<string, number>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { collection: { $in: uuids.map(toUuid) } } },
      { $group: { _id: '$collection', bytes: { $sum: '$bytes' } } },
    ])
    return new Map(groups.map((group) => [fromUuid(group['_id'] as Binary), Number(group['bytes'])]))
  }

  /** Of each of these collections that has any, in order. */
  async load(uuids: string[]): Promise<Map<string, Segment[]>> {
    const loaded = new Map<string, Segment[]>()
    const found = await this.#stored.find('segments', { collection: { $in: uuids.map(toUuid) } })
    for (const segment of found.map(toSegment).sort((one, other) => one.ordinal - other.ordinal)) {
      const others = loaded.get(segment.collection)
      if (others) others.push(segment)
      else loaded.set(segment.collection, [segment])
    }
    return loaded
  }

  async remove(uuids: string[]): Promise<void> {
    for (let from = 0; from < uuids.length; from += uuidsMax) {
      const collections = uuids.slice(from, from + uuidsMax).map(toUuid)
      const q = { collection: { $in: collections }, term: notOfLater(this.#term()) }
      await this.#stored.delete('segments', [{ q, limit: 0 }])
    }
  }

  async createIndexes(): Promise<void> {
    await this.#stored.createIndex('segments', { collection: 1 }, 'collection')
    await this.#stored.createIndex('segments', { done: 1, owner: 1, rank: 1 }, 'done_owner_rank')
  }

  async #openOwners(): Promise<OwnerToken[]> {
    const owners = await this.#stored.distinct('segments', 'owner', { done: false })
    return owners.filter((owner): owner is OwnerToken => owner !== null)
  }
}

function literal(value: string): Document {
  return { $literal: value }
}

function keyOf({ collection, ordinal }: Segment): string {
  return `${Buffer.from(collection, 'latin1').toString('hex')}:${ordinal}`
}

function boundsOf(segment: Segment): Document {
  return {
    collection: toUuid(segment.collection),
    ordinal: segment.ordinal,
    rank: segment.rank,
    from: segment.from ? new Binary(segment.from) : null,
    to: segment.to ? new Binary(segment.to) : null,
  }
}

function progressOf(segment: Segment): Document {
  return {
    last: segment.last ? new Binary(segment.last) : null,
    done: segment.done,
    documents: segment.documents,
    bytes: segment.bytes,
    attempts: segment.attempts,
  }
}

function toSegment(document: Document): Segment {
  return {
    collection: fromUuid(document['collection'] as Binary),
    ordinal: document['ordinal'] as number,
    rank: document['rank'] as number,
    from: optionalBytes(document['from']),
    to: optionalBytes(document['to']),
    last: optionalBytes(document['last']),
    done: document['done'] as boolean,
    documents: document['documents'] as number,
    bytes: document['bytes'] as number,
    attempts: document['attempts'] as number,
    wasOwn: document['ownerID'] !== null && document['ownerID'] === document['previousID'],
    claim: document['claim'] as number,
  }
}

function optionalBytes(value: unknown): Buffer | null {
  return value ? Buffer.from((value as Binary).buffer) : null
}
