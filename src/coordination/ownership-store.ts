import type { Document } from 'mongodb'
import { type LeaseView, type OwnerToken, parseOwner } from '../domain/owner.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code } from '../mongo/errors.ts'
import { givenUp, LeaseWatch } from '../mongo/lease-watch.ts'
import { predecessorsOf, writesEnded } from '../mongo/predecessors.ts'
import { drainedEpoch, isEvicted, leaseFields, syncStateCollection } from '../mongo/stored-names.ts'
import { type StatementFailure, UnfencedMetadata } from '../mongo/unfenced-metadata.ts'
import { closeSessions, type LeaseSessions } from '../mongo/write-sessions.ts'
import { type RoundPart, takePart } from './round-parts.ts'

/** The coordinator role, or a partition by its number. */
export type ClaimKey = 'coordinator' | number

export interface Claim {
  owner: OwnerToken | null
  /** Increases with every new owner. */
  epoch: number
  /** The last owner and the time of its claim, kept after the claim is given back. */
  last: { owner: OwnerToken; since: Date }
}

export interface Ownership {
  leases: LeaseView[]
  claims: Map<ClaimKey, Claim>
  /** The revision of the stored sync state; null if none is stored. */
  revision: number | null
  /** True if a barrier is stored that is not done. */
  hasOpenBarrier: boolean
  /** When the read was sent (ms, `performance.now()`). */
  readAt: number
}

/** Returns the ownership as it is known before the first read. */
export function unread(): Ownership {
  const readAt = Number.NEGATIVE_INFINITY
  return { leases: [], claims: new Map(), revision: null, hasOpenBarrier: false, readAt }
}

const timeoutMS = 5_000
/**
 * Documents of `ownershipHistory` kept for each claim. They cover days, and their number does not grow with the sync's
 * duration.
 */
export const historyMax = 1_000
/**
 * The number of older history documents that each new claim deletes. It is above 1, because an owner may fail before it
 * deletes any. Later claims then delete them.
 */
const prunedAtOnce = 10
const instancePrefix = 'instance:'

/**
 * The authoritative ownership of the coordinator role and the partitions, in the metadata database; the liveness store
 * cannot change it. A new owner takes a claim with a compare-and-set on the claim's epoch, and then adds a document to
 * `ownershipHistory`. The `_id` of that document is the claim and the epoch, so it records only one owner of an epoch.
 * If an owner fails before it writes its document, its successor writes it. The last `historyMax` documents of each
 * claim are kept.
 */
export class OwnershipStore {
  readonly #cluster: Cluster
  readonly #metadata: UnfencedMetadata
  readonly #watch = new LeaseWatch()

  /** @param database the metadata database; by default, that of the cluster at this moment */
  constructor(destination: Cluster, database?: string) {
    this.#cluster = destination
    this.#metadata = new UnfencedMetadata(destination, { timeoutMS }, database)
  }

  static leaseName(id: string): string {
    return `${instancePrefix}${id}`
  }

  /**
   * Reads everything that a round needs with one command. The server reads the leases before the claims: a claim that is
   * made between the two reads cannot make an expired owner appear alive, because an expired lease term stays expired. It
   * opens a collection when it has read the one before it to its end (`DocumentSourceUnionWith::doGetNext` in
   * document_source_union_with.cpp).
   * @param also what else the command reads, last. All documents must fit in one batch
   */
  async read(also: readonly RoundPart[] = []): Promise<Ownership> {
    const readAt = performance.now()
    const rows = await this.#aggregate('leases', [
      { $match: { _id: { $regex: `^${instancePrefix}` } } },
      { $set: { part: 'lease' } },
      { $unionWith: { coll: 'ownership', pipeline: [{ $set: { part: 'claim' } }] } },
      {
        $unionWith: {
          coll: syncStateCollection,
          pipeline: [{ $match: { _id: 'sync' } }, { $project: { revision: 1 } }, { $set: { part: 'sync' } }],
        },
      },
      {
        $unionWith: {
          coll: 'barriers',
          pipeline: [
            { $match: { done: false } },
            { $limit: 1 },
            { $project: { done: 1 } },
            { $set: { part: 'barrier' } },
          ],
        },
      },
      ...also.map(({ collection: coll, pipeline }) => ({
        $unionWith: { coll, pipeline: [...pipeline, { $set: { part: coll } }] },
      })),
    ])
    const partsOf = (part: string): Document[] => rows.filter((row) => row['part'] === part)
    const [leases, claims] = [partsOf('lease'), partsOf('claim')]
    for (const one of also) takePart(one, partsOf(one.collection))
    return {
      revision: (partsOf('sync')[0]?.['revision'] as number | undefined) ?? null,
      hasOpenBarrier: partsOf('barrier').length > 0,
      readAt,
      leases: leases.map((lease) => ({
        id: lease['owner'] as string,
        epoch: lease['epoch'] as number,
        drained: drainedEpoch(lease),
        expiresAt: lease['expiresAt'] as Date,
        expired: this.#watch.isUnrenewed(lease['_id'], {
          epoch: lease['epoch'] as number,
          expiresAt: lease['expiresAt'] as Date,
        }),
        incarnation: lease['incarnation'] as string,
        predecessors: predecessorsOf(lease),
        sessions: (lease['sessions'] as LeaseSessions | null | undefined) ?? null,
        evicted: isEvicted(lease),
        takesWork: lease['takesWork'] === true,
        // An earlier release did not store `atWork`.
        atWork: (lease['atWork'] ?? lease['takesWork']) === true,
        stoppedFor: (lease['stoppedFor'] as number | undefined) ?? 0,
      })),
      claims: new Map(
        claims.map((claim) => [
          claim['_id'] as ClaimKey,
          {
            owner: claim['owner'] as OwnerToken | null,
            epoch: claim['epoch'] as number,
            last: claim['last'] as Claim['last'],
          },
        ]),
      ),
    }
  }

  /**
   * Makes `owner` the owner of the claim, unless the stored claim is no longer `observed`.
   * @param observed the claim as it was read; undefined when none was stored
   * @returns true when `owner` now owns the claim
   */
  async claim(key: ClaimKey, observed: Claim | undefined, owner: OwnerToken): Promise<boolean> {
    const since = new Date()
    if (!(await this.take(key, observed, owner, since))) return false
    await this.record(new Map([[key, observed]]), owner, since)
    return true
  }

  /** Like `claim`, but leaves the history to `record`, for which the new owner need not wait. */
  async take(key: ClaimKey, observed: Claim | undefined, owner: OwnerToken, since: Date): Promise<boolean> {
    const { q, u, upsert } = takeStatement(key, observed, owner, since)
    return await this.#update('ownership', q, u, upsert)
  }

  /**
   * Takes several claims in one round trip, each as `take` does. One that another owner has taken does not prevent the
   * others.
   * @returns the claims that `owner` now owns
   */
  async takeAll(
    observed: ReadonlyMap<ClaimKey, Claim | undefined>,
    owner: OwnerToken,
    since: Date,
  ): Promise<Set<ClaimKey>> {
    const keys = [...observed.keys()]
    if (keys.length === 0) return new Set()
    const updates = keys.map((key) => takeStatement(key, observed.get(key), owner, since))
    const { reply, failed } = await this.#metadata.write({ update: 'ownership', updates, ordered: false })
    const other = failed.find((one) => one.code !== code.duplicateKey)
    if (other) throw notStored(other)
    const refused = new Set(failed.map(({ index }) => index))
    const accepted = keys.filter((_, index) => !refused.has(index))
    if (reply['n'] === accepted.length) return new Set(accepted)
    // A statement without an upsert that matches nothing is no error, and the reply does not name it.
    const stored = await this.#aggregate('ownership', [{ $match: { _id: { $in: accepted } } }])
    const epochOf = new Map(stored.filter((one) => one['owner'] === owner).map((one) => [one['_id'], one['epoch']]))
    return new Set(accepted.filter((key) => epochOf.get(key) === (observed.get(key)?.epoch ?? 0) + 1))
  }

  /**
   * Adds claims that were taken to the history. If this fails, their next owners add them, because a claim itself stores
   * its last owner.
   * @param taken each claim as it was read before
   */
  async record(taken: ReadonlyMap<ClaimKey, Claim | undefined>, owner: OwnerToken, since: Date): Promise<void> {
    if (taken.size === 0) return
    const lines = [...taken].flatMap(([key, observed]) => [
      ...(observed ? [historyLine(key, observed.epoch, observed.last)] : []),
      historyLine(key, (observed?.epoch ?? 0) + 1, { owner, since }),
    ])
    await this.#write({ update: 'ownershipHistory', updates: lines })
    const pruned = [...taken].flatMap(([key, observed]) => prunedOf(key, (observed?.epoch ?? 0) + 1))
    if (pruned.length === 0) return
    await this.#write({ delete: 'ownershipHistory', deletes: [{ q: { _id: { $in: pruned } }, limit: 0 }] })
  }

  /**
   * Gives claims back, each with the epoch in which it was claimed. The write may arrive after its sender has given up
   * on it. It therefore does not match claims that this owner has lost, or has claimed again since.
   */
  async release(claims: Iterable<readonly [key: ClaimKey, epoch: number]>, owner: OwnerToken): Promise<void> {
    const updates = [...claims].map(([_id, epoch]) => ({ q: { _id, owner, epoch }, u: { $set: { owner: null } } }))
    if (updates.length === 0) return
    await this.#write({ update: 'ownership', updates })
  }

  /**
   * Evicts an instance whose lease has expired, so that its claims may be taken over. First it raises the epoch of the
   * lease, so that the instance cannot renew it. On a replica set it then closes the instance's write sessions, so that
   * delayed writes are rejected. Last it waits until all writes have ended. An eviction may be repeated, also by
   * several instances at the same time.
   * @returns false when the lease was renewed, or another instance began an eviction, after `lease` was read
   * @param confirmMS how long the evicted instance may still assume that it holds its lease, ms; 0 if the expired lease
   * proves that the instance does not assume this
   */
  async evict(lease: LeaseView, confirmMS: number, pause: (milliseconds: number) => Promise<void>): Promise<boolean> {
    const name = OwnershipStore.leaseName(lease.id)
    let { epoch } = lease
    if (lease.drained <= epoch && !(await this.#isEvicted(name, epoch))) {
      // The filter contains the expiry that was read, so a lease that was renewed since then does not match.
      const unrenewed = confirmMS === 0 ? { expiresAt: lease.expiresAt } : {}
      const ended = { takesWork: false, atWork: false, expiresAt: givenUp }
      const evicted = { $set: { epoch: epoch + 1, [leaseFields.evicted]: true, ...ended } }
      if (!(await this.#update('leases', { _id: name, epoch, ...unrenewed }, evicted))) return false
      epoch += 1
    }
    await pause(confirmMS)
    const incarnations = [...lease.predecessors, lease.incarnation]
    if (lease.sessions) await closeSessions(this.#cluster, lease.sessions, incarnations, epoch)
    await writesEnded(this.#cluster, incarnations)
    const drained = { $set: { [leaseFields.drained]: epoch + 1, predecessors: [] } }
    return await this.#update('leases', { _id: name, epoch, [leaseFields.evicted]: true }, drained)
  }

  async #isEvicted(name: string, epoch: number): Promise<boolean> {
    return (await this.#aggregate('leases', [{ $match: { _id: name, epoch, [leaseFields.evicted]: true } }])).length > 0
  }

  async #aggregate(collection: string, pipeline: Document[]): Promise<Document[]> {
    return await this.#metadata.read({ aggregate: collection, pipeline, cursor: { batchSize: 10_000 } })
  }

  /** True when the filter matched or, with upsert, the document did not exist. */
  async #update(collection: string, q: Document, u: Document, upsert = false): Promise<boolean> {
    const reply = await this.#write({ update: collection, updates: [{ q, u, upsert }] })
    return reply !== null && (reply['n'] as number) > 0
  }

  async #write(command: Document): Promise<Document | null> {
    const { reply, failed } = await this.#metadata.write(command)
    const [first] = failed
    if (!first) return reply
    if (first.code === code.duplicateKey) return null
    throw notStored(first)
  }
}

function notStored({ errmsg }: StatementFailure): Error {
  return new Error(`ownership could not be stored: ${errmsg}`)
}

/** Matches only the claim as it was read, so that one of several contenders wins it. */
function takeStatement(
  key: ClaimKey,
  observed: Claim | undefined,
  owner: OwnerToken,
  since: Date,
): { q: Document; u: Document; upsert: boolean } {
  const epoch = (observed?.epoch ?? 0) + 1
  const u = { $set: { owner, epoch, last: { owner, since }, schemaVersion: 1 } }
  if (!observed) return { q: { _id: key, epoch: { $exists: false } }, u, upsert: true }
  return { q: { _id: key, epoch: observed.epoch, owner: observed.owner }, u, upsert: false }
}

/** mongosyncID of the instance that holds the claim; null when none does. */
export function holderOf(claim: Claim | undefined): string | null {
  return claim?.owner ? parseOwner(claim.owner).id : null
}

function historyID(key: ClaimKey, epoch: number): string {
  return `${key}:${epoch}`
}

/** The `_id`s of the history that a claim with this epoch makes superfluous. */
function prunedOf(key: ClaimKey, epoch: number): string[] {
  const epochs = Array.from({ length: prunedAtOnce }, (_, at) => epoch - historyMax - at)
  return epochs.filter((one) => one > 0).map((one) => historyID(key, one))
}

function historyLine(key: ClaimKey, epoch: number, { owner, since }: Claim['last']): Document {
  return { q: { _id: historyID(key, epoch) }, u: { $setOnInsert: { owner, at: since } }, upsert: true }
}
