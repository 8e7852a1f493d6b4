import { Binary, type Document, type Timestamp } from 'mongodb'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { OwnerToken } from '../domain/owner.ts'
import { fromTimestamp, toTimestamp } from './cluster.ts'
import { bytesOf, type StoredDocuments, type StoredUpdate } from './stored-documents.ts'
import { fromUuid, toUuid } from './uuid.ts'

/** One range of a collection that any instance may compare for the coordinator's verifier. */
export interface OfferedRange {
  /** The collection's UUID on the source. */
  collection: string
  /** The UUID that the collection had on the destination when the range was offered. */
  destination: string
  ordinal: number
  /** The bounds as typed values; null for no bound. */
  from: Buffer | null
  to: Buffer | null
  /** The source is read at this time or later. */
  sourceTime: ClusterTime
}

/** The numbers of documents that a comparison has read from each cluster, and the bytes that it has read from the source. */
export interface RangeResult {
  source: number
  destination: number
  bytes: number
}

/** Ranges that are claimed and completed together. */
export interface Offer {
  /** A random text for each run of the verifier. A result counts only for the run that has offered the ranges. */
  pass: string
  /** Unique within the pass. */
  number: number
  ranges: readonly OfferedRange[]
  /** The destination is read at this time or later. */
  destinationTime: ClusterTime
}

export interface ClaimedOffer extends Offer {
  owner: OwnerToken
  claim: number
}

export interface OfferState {
  number: number
  owner: OwnerToken | null
  /** One for each range, null for a range that the owner did not compare; null until the offer is completed. */
  results: readonly (RangeResult | null)[] | null
}

const name = 'verificationClaims'

/**
 * The ranges that the coordinator offers to the other instances while its verifier compares everything for the first
 * time. Each offer is claimed by one instance, like a segment of the copy. Only the coordinator creates and removes
 * offers, and only it stores that a range is verified. Earlier releases do not read this collection.
 *
 * If the reply to a write is lost, the write is sent again. The repetition changes nothing:
 *
 *   offer                    inserts only, so it does not reset an offer that has been claimed or completed meanwhile
 *   claim                    its filter does not match the new owner; the claimed offers are read afterwards
 *   complete                 stores the same results
 *   release                  its filter does not match an offer without an owner, of another owner, or of a later claim
 *   remove, takeBack, clear  no number is used twice in a pass, so they find no other offer under the same key
 */
export class RangeClaims {
  readonly #stored: StoredDocuments

  constructor(stored: StoredDocuments) {
    this.#stored = stored
  }

  /** Runs `work` with claims whose operations also reject with StoppedError when this signal is aborted. */
  async until<T>(signal: AbortSignal, work: (claims: RangeClaims) => Promise<T>): Promise<T> {
    return await this.#stored.until(signal, (stored) => work(new RangeClaims(stored)))
  }

  /** @param term the coordinator's term. Instances claim only offers of the term in which they know the coordinator */
  async offer(offers: readonly Offer[], term: number): Promise<void> {
    await this.#stored.update(
      name,
      offers.map(({ pass, number, ranges, destinationTime }) => ({
        q: { _id: keyOf(pass, number) },
        u: {
          $set: {},
          $setOnInsert: {
            ...{ pass, number, term, destinationTime: toTimestamp(destinationTime) },
            ranges: ranges.map(storedRange),
            ...{ owner: null, claim: 0, done: false, results: null },
          },
        },
        upsert: true,
      })),
    )
  }

  /** The offers of this pass that are stored. */
  async states(pass: string): Promise<OfferState[]> {
    const projection = { schemaVersion: 1, number: 1, owner: 1, done: 1, results: 1 }
    const found = await this.#stored.find(name, { pass }, { projection })
    return found.map((document) => ({
      number: document['number'] as number,
      owner: document['owner'] as OwnerToken | null,
      results: document['done'] === true ? (document['results'] as (RangeResult | null)[]) : null,
    }))
  }

  /**
   * Claims up to `limit` offers of this term that have no owner or an expired one.
   * @param claim a number that this owner has not used for an earlier claim
   */
  async claim(
    owner: OwnerToken,
    claim: number,
    limit: number,
    term: number,
    isExpired: (owner: OwnerToken) => boolean,
  ): Promise<ClaimedOffer[]> {
    const open = await this.#stored.find(
      name,
      { term, done: false },
      { sort: { number: 1 }, projection: { schemaVersion: 1, owner: 1 } },
    )
    const isFree = (former: OwnerToken | null): boolean => former === null || isExpired(former)
    const free = open.filter((one) => isFree(one['owner'] as OwnerToken | null))
    // Even and odd claims choose from opposite ends, so that instances that claim at the same moment often choose
    // different offers.
    const candidates = (claim % 2 === 0 ? free : free.toReversed()).slice(0, limit)
    if (candidates.length === 0) return []
    const updates = candidates.map(({ _id, owner: former }): StoredUpdate => {
      // $literal: a pipeline would read a text that begins with `$` as a field path.
      return { q: { _id, owner: former, done: false }, u: [{ $set: { owner: { $literal: owner }, claim } }] }
    })
    await this.#stored.update(name, updates)
    const claimed = await this.#stored.find(name, { owner, claim, done: false })
    return claimed.map(toOffer)
  }

  /**
   * Stores the results of an offer, unless another instance or a later claim has taken it, or the coordinator has
   * removed it. Returns true if they are stored. It also returns false if they were stored, the reply was lost, and the
   * coordinator had taken them before the write was repeated.
   */
  async complete(
    { pass, number, owner, claim }: Omit<ClaimedOffer, 'ranges' | 'destinationTime'>,
    results: readonly (RangeResult | null)[],
  ): Promise<boolean> {
    // A repetition also matches the completed offer, so that it returns true.
    const q = { _id: keyOf(pass, number), owner, claim }
    return (await this.#stored.update(name, [{ q, u: { $set: { done: true, results } } }])) === 1
  }

  /**
   * Gives back the offers that this owner has claimed and not completed.
   * @param lastClaim offers of later claims are kept, because a delayed release may arrive after them
   */
  async release(owner: OwnerToken, lastClaim: number): Promise<void> {
    const q = { owner, done: false, claim: { $lte: lastClaim } }
    await this.#stored.update(name, [{ q, u: [{ $set: { owner: null } }], multi: true }])
  }

  /** Removes offers whose results the coordinator has taken. */
  async remove(pass: string, numbers: readonly number[]): Promise<void> {
    await this.#stored.delete(
      name,
      numbers.map((number) => ({ q: { _id: keyOf(pass, number) }, limit: 1 })),
    )
  }

  /** Removes offers that still have the observed owner. An offer that is then missing cannot be completed any more. */
  async takeBack(pass: string, offers: readonly Pick<OfferState, 'number' | 'owner'>[]): Promise<void> {
    await this.#stored.delete(
      name,
      offers.map(({ number, owner }) => ({ q: { _id: keyOf(pass, number), owner, done: false }, limit: 1 })),
    )
  }

  /** Removes all offers. Results of earlier passes that nobody has taken are lost, and their ranges compared again. */
  async clear(): Promise<void> {
    await this.#stored.clear(name)
  }
}

function keyOf(pass: string, number: number): string {
  return `${pass}:${number}`
}

function storedRange({ collection, destination, ordinal, from, to, sourceTime }: OfferedRange): Document {
  return {
    collection: toUuid(collection),
    destination: toUuid(destination),
    ordinal,
    from: from && new Binary(from),
    to: to && new Binary(to),
    sourceTime: toTimestamp(sourceTime),
  }
}

function toOffer(document: Document): ClaimedOffer {
  return {
    pass: document['pass'] as string,
    number: document['number'] as number,
    owner: document['owner'] as OwnerToken,
    claim: document['claim'] as number,
    destinationTime: fromTimestamp(document['destinationTime'] as Timestamp),
    ranges: (document['ranges'] as Document[]).map((range) => ({
      collection: fromUuid(range['collection'] as Binary),
      destination: fromUuid(range['destination'] as Binary),
      ordinal: range['ordinal'] as number,
      from: range['from'] ? bytesOf(range['from']) : null,
      to: range['to'] ? bytesOf(range['to']) : null,
      sourceTime: fromTimestamp(range['sourceTime'] as Timestamp),
    })),
  }
}
