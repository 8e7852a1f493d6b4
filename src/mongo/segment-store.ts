import { Binary, type Document } from 'mongodb'
import type { Segment } from '../domain/catalog.ts'
import { both } from '../domain/in-parallel.ts'
import type { NaturalRead } from '../domain/natural-order.ts'
import type { OwnerToken } from '../domain/owner.ts'
import { parseOwner } from '../domain/owner.ts'
import type { CommandOptions } from './cluster.ts'
import { bytesOf, notOfLater, type StoredDocuments, type StoredVersion } from './stored-documents.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** The largest number of UUIDs in one `$in`. */
const uuidsMax = 500
/**
 * Up to this many segments are changed by one statement each, in a command that takes one round trip. A statement that may
 * change several documents needs a transaction and its commit, and so do eight statements or more (`numberedForms`).
 */
const singlyMax = 7
/** Number of candidates that a claim reads beyond its limit, because other instances claim at the same time. */
const spareCandidates = 8

/**
 * The order in which segments are claimed. Segments of schema version 1 have no such field. They are claimed first, in
 * any order. An index that was created with them does not contain the field, so the server sorts the candidates in memory.
 */
const inOrder = { priority: 1 } as const

/**
 * Version 2 stores the position of a segment in the plan in another field than version 1. A release that knows only
 * version 1 would not sort by that field. Version 3 is a segment that is read in natural order. The ranges that the
 * verifier compares in it are not its bounds. A release that does not know natural order would number the verified ranges
 * in another way than this release. The version makes such a release refuse the segment, even if it knows version 2. All
 * other segments are written in version 2. `toSegment` decides by the fields, not by the version.
 */
const reads = [1, 2, 3] as const
const versions = { ranges: { writes: 2, reads }, natural: { writes: 3, reads } } as const

/** The segments of the copy, each claimed by one instance: collection `segments` of the metadata database. */
export class SegmentStore {
  readonly #stored: StoredDocuments
  /** Writes segments that are read in natural order. */
  readonly #storedNatural: StoredDocuments
  readonly #coordinator: { readonly term: number }

  /**
   * @param stored returns the stored documents in this version
   * @param coordinator the coordinator's term: an earlier term cannot remove, replace or open a later term's segments
   */
  constructor(
    stored: (version: StoredVersion) => StoredDocuments,
    coordinator: { readonly term: number } = { term: 0 },
  ) {
    this.#stored = stored(versions.ranges)
    this.#storedNatural = stored(versions.natural)
    this.#coordinator = coordinator
  }

  /**
   * Stores a plan. Segments are claimed in order of their priority, and only after `open`. If they could be claimed at
   * once, and a crash interrupted the plan, a successor would make the plan again while other instances still copy the
   * ranges of the interrupted plan. Those instances would insert documents after the copy has ended.
   */
  async plan(segments: Segment[]): Promise<void> {
    const term = this.#coordinator.term
    for (const [stored, ofVersion] of this.#byVersion(segments)) {
      await stored.updateFenced(
        'segments',
        ofVersion.map((segment) => ({
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
  }

  /**
   * Makes the segments of these collections claimable: their plan is stored completely and will not be made again.
   * @param planned the segments of these and of other collections, if they are known
   * @param claim if given, the first segments of `planned`, at most `limit`, are also claimed in the same write, because
   * nobody else claims any
   * @returns the segments that were claimed
   */
  async open(
    uuids: string[],
    planned: readonly Segment[] = [],
    claim: { owner: OwnerToken; number: number; limit: number } | null = null,
  ): Promise<Segment[]> {
    const wanted = new Set(uuids)
    const known = planned.filter(({ collection }) => wanted.has(collection))
    const claimed = known.slice(0, claim?.limit ?? 0)
    const closed = { claimable: { $ne: true }, term: notOfLater(this.#coordinator.term) }
    // A pipeline keeps the schema version of each segment.
    const opened = [{ $set: { claimable: true } }]
    const owned = [{ $set: { claimable: true, ...(claim && ownedBy(claim.owner, claim.number)) } }]
    let matched = 0
    if (known.length > 0 && known.length <= singlyMax) {
      const statements = known.map((segment, at) => ({
        q: { _id: keyOf(segment), ...closed },
        u: at < claimed.length ? owned : opened,
      }))
      matched = await this.#stored.update('segments', statements)
    } else {
      const ofClaim = { q: { _id: { $in: claimed.map(keyOf) }, ...closed }, u: owned, multi: true }
      for (let from = 0; from < uuids.length; from += uuidsMax) {
        const collections = uuids.slice(from, from + uuidsMax).map(toUuid)
        const ofAll = { q: { collection: { $in: collections }, ...closed }, u: opened, multi: true }
        const isClaiming = from === 0 && claimed.length > 0
        matched += await this.#stored.update('segments', isClaiming ? [ofClaim, ofAll] : [ofAll])
      }
    }
    if (!claim) return []
    if (matched === known.length) return claimed.map((segment) => ({ ...segment, claim: claim.number }))
    // The reply to an earlier attempt was lost, or a later term has replaced the plan.
    return await this.#claimedBy(claim.owner, claim.number)
  }

  /**
   * Stores the progress of segments. Skips a segment that another owner or a later claim has taken, and a segment that was
   * removed. After a collection was split again, the same ordinal is a different range with another claim.
   */
  async saveProgress(segments: Segment[], owner: OwnerToken): Promise<void> {
    for (const [stored, ofVersion] of this.#byVersion(segments)) {
      await stored.update(
        'segments',
        ofVersion.map((segment) => ({
          q: { _id: keyOf(segment), owner, claim: segment.claim },
          u: { $set: progressOf(segment) },
        })),
      )
    }
  }

  /**
   * Claims up to `limit` unfinished segments that are claimable and have no owner or an expired one. Returns them as
   * stored: the copy of a segment that is taken over continues after the last `_id` in its stored progress.
   * @param claim a number that this owner has not used for an earlier claim
   */
  async claim(
    owner: OwnerToken,
    claim: number,
    limit: number,
    isExpired: (owner: OwnerToken) => boolean,
  ): Promise<Segment[]> {
    const read = { sort: inOrder, limit: limit + spareCandidates, projection: { _id: 1, schemaVersion: 1 } }
    const heldBy = (owners: (OwnerToken | null)[]) => ({ done: false, claimable: true, owner: { $in: owners } })
    // As a rule no owner has expired, and the free segments that are read meanwhile are the candidates.
    const findFree = this.#stored.find('segments', heldBy([null]), read)
    const [free, owners] = await both(findFree, this.#ownersOfUnfinished())
    const expired = owners.filter(isExpired)
    const claimable = heldBy([null, ...expired])
    const candidates = expired.length === 0 ? free : await this.#stored.find('segments', claimable, read)
    if (candidates.length === 0) return []
    // Even and odd claims choose from opposite ends, so that instances that claim at the same moment choose differently.
    const chosen =
      candidates.length > limit
        ? candidates.slice(claim % 2 === 0 ? 0 : candidates.length - limit).slice(0, limit)
        : candidates
    const ids = chosen.map((candidate) => candidate['_id'])
    const u = [{ $set: ownedBy(owner, claim) }]
    await this.#stored.update(
      'segments',
      ids.length <= singlyMax
        ? ids.map((_id) => ({ q: { _id, ...claimable }, u }))
        : [{ q: { _id: { $in: ids }, ...claimable }, u, multi: true }],
    )
    return await this.#claimedBy(owner, claim)
  }

  async #claimedBy(owner: OwnerToken, claim: number): Promise<Segment[]> {
    const claimed = await this.#stored.find('segments', { owner, claim, done: false }, { sort: inOrder })
    return claimed.map(toSegment)
  }

  /**
   * Gives unfinished segments back, with their stored progress.
   * @param lastClaim segments of later claims are kept, because a delayed release may arrive when this owner already
   * copies them
   */
  async release(owner: OwnerToken, lastClaim: number): Promise<void> {
    const q = { owner, done: false, claim: { $lte: lastClaim } }
    await this.#stored.update('segments', [{ q, u: [{ $set: { owner: null } }], multi: true }])
  }

  /** Returns the UUIDs of collections that have unfinished segments. */
  async openCollections(): Promise<Set<string>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { done: false } },
      { $group: { _id: '$collection' } },
    ])
    return new Set(groups.map((group) => fromUuid(group['_id'] as Binary)))
  }

  /** Returns the bytes of each collection that the instance with this id has copied. */
  async bytesBy(id: string): Promise<Map<string, number>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { ownerID: id } },
      { $group: { _id: '$collection', bytes: { $sum: '$bytes' } } },
    ])
    return new Map(groups.map((group) => [fromUuid(group['_id'] as Binary), Number(group['bytes'])]))
  }

  /** Returns the copied bytes of each instance, by mongosyncID. */
  async bytesByInstance(): Promise<Map<string, number>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { ownerID: { $ne: null } } },
      { $group: { _id: '$ownerID', bytes: { $sum: '$bytes' } } },
    ])
    return new Map(groups.map((group) => [group['_id'] as string, Number(group['bytes'])]))
  }

  /** Returns the number of all segments, and of those that any instance has copied. */
  async counts(): Promise<{ written: number; total: number }> {
    const [counts] = await this.#stored.aggregate('segments', [
      { $group: { _id: null, total: { $sum: 1 }, written: { $sum: { $cond: ['$done', 1, 0] } } } },
    ])
    return { written: Number(counts?.['written'] ?? 0), total: Number(counts?.['total'] ?? 0) }
  }

  /** Returns the copied bytes of each of these collections that has segments. */
  async bytesOf(uuids: string[]): Promise<Map<string, number>> {
    const groups = await this.#stored.aggregate('segments', [
      { $match: { collection: { $in: uuids.map(toUuid) } } },
      { $group: { _id: '$collection', bytes: { $sum: '$bytes' } } },
    ])
    return new Map(groups.map((group) => [fromUuid(group['_id'] as Binary), Number(group['bytes'])]))
  }

  /** Returns the segments of each of these collections that has any, in order. */
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

  /**
   * Removes the segments of these collections, except those of a later term. Segments have the same `_id`s in every plan
   * of a collection. Without the term, a delayed delete of an earlier coordinator would remove segments of the plan that
   * its successor has stored, and their ranges would count as copied. A replica set also refuses such a delete by its
   * transaction number. On a sharded cluster only the term prevents the removal.
   */
  async remove(uuids: string[]): Promise<void> {
    for (let from = 0; from < uuids.length; from += uuidsMax) {
      const collections = uuids.slice(from, from + uuidsMax).map(toUuid)
      const guard = { term: notOfLater(this.#coordinator.term) }
      await this.#stored.deleteAll('segments', { collection: { $in: collections } }, guard)
    }
  }

  async createIndexes(options: Pick<CommandOptions, 'timeoutMS'> = {}): Promise<void> {
    const done = { key: { done: 1, owner: 1, ...inOrder }, name: 'done_owner_priority' }
    await this.#stored.createIndexes('segments', [{ key: { collection: 1 }, name: 'collection' }, done], options)
  }

  #byVersion(segments: Segment[]): [StoredDocuments, Segment[]][] {
    const natural = segments.filter((segment) => segment.natural)
    const ranges = segments.filter((segment) => !segment.natural)
    const all: [StoredDocuments, Segment[]][] = [
      [this.#stored, ranges],
      [this.#storedNatural, natural],
    ]
    return all.filter(([, ofVersion]) => ofVersion.length > 0)
  }

  async #ownersOfUnfinished(): Promise<OwnerToken[]> {
    const owners = await this.#stored.distinct('segments', 'owner', { done: false })
    return owners.filter((owner): owner is OwnerToken => owner !== null)
  }
}

/** The fields of a claimed segment, for a pipeline, which would read a text that begins with `$` as a field path. */
function ownedBy(owner: OwnerToken, claim: number): Document {
  return {
    previousID: '$ownerID',
    owner: { $literal: owner },
    ownerID: { $literal: parseOwner(owner).id },
    claim,
  }
}

function keyOf({ collection, ordinal }: Segment): string {
  return `${Buffer.from(collection, 'latin1').toString('hex')}:${ordinal}`
}

function boundsOf(segment: Segment): Document {
  return {
    collection: toUuid(segment.collection),
    ordinal: segment.ordinal,
    priority: segment.priority,
    from: segment.from ? new Binary(segment.from) : null,
    to: segment.to ? new Binary(segment.to) : null,
    ...(segment.natural && { splits: segment.natural.splits.map(toBinary) }),
  }
}

function progressOf(segment: Segment): Document {
  return {
    last: segment.last ? new Binary(segment.last) : null,
    done: segment.done,
    documents: segment.documents,
    bytes: segment.bytes,
    attempts: segment.attempts,
    ...(segment.natural && { server: segment.natural.server, tokens: segment.natural.tokens.map(toBinary) }),
  }
}

function toSegment(document: Document): Segment {
  return {
    collection: fromUuid(document['collection'] as Binary),
    ordinal: document['ordinal'] as number,
    // Schema version 1 has the field `rank` instead.
    priority: (document['priority'] ?? document['rank']) as number,
    from: optionalBytes(document['from']),
    to: optionalBytes(document['to']),
    last: optionalBytes(document['last']),
    natural: naturalOf(document),
    done: document['done'] as boolean,
    documents: document['documents'] as number,
    bytes: document['bytes'] as number,
    attempts: document['attempts'] as number,
    wasOwn: document['ownerID'] !== null && document['ownerID'] === document['previousID'],
    claim: document['claim'] as number,
  }
}

function naturalOf(document: Document): NaturalRead | null {
  if (!document['splits']) return null
  return {
    splits: (document['splits'] as Binary[]).map(bytesOf),
    server: document['server'] as string | null,
    tokens: (document['tokens'] as Binary[]).map(bytesOf),
  }
}

function toBinary(bytes: Buffer): Binary {
  return new Binary(bytes)
}

function optionalBytes(value: unknown): Buffer | null {
  return value ? bytesOf(value) : null
}
