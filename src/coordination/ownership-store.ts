import type { Document } from 'mongodb'
import { metadataDatabase } from '../domain/namespace.ts'
import type { LeaseView, OwnerToken } from '../domain/owner.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code } from '../mongo/errors.ts'
import { givenUp, LeaseWatch } from '../mongo/lease-watch.ts'
import { predecessorsOf, writesEnded } from '../mongo/predecessors.ts'
import { closeSessions, type LeaseSessions } from '../mongo/write-sessions.ts'

/** The coordinator's office, or a partition by its number. */
export type ClaimKey = 'coordinator' | number

export interface Claim {
  owner: OwnerToken | null
  /** Rises with every owner. */
  epoch: number
  /** Who owned it last, and since when, also when it was given back. */
  last: { owner: OwnerToken; since: Date }
}

export interface Ownership {
  leases: LeaseView[]
  claims: Map<ClaimKey, Claim>
}

const timeoutMS = 5_000
/** Lines of `ownershipHistory` kept for each claim: enough to tell what went on for days, and no more however long a sync runs. */
export const historyMax = 1_000
/** Lines before those that are forgotten with every claim: whoever died before he could has left his to a successor. */
const forgottenAtOnce = 10
const instancePrefix = 'instance:'

/**
 * What is true about who owns what, in the metadata database, whatever the liveness store believes. Every change of an
 * owner is a compare-and-set on the claim's epoch and leaves a line in `ownershipHistory`, whose `_id` (claim and epoch)
 * two owners could not both have written. Who dies before he has written his leaves that to his successor. Of each claim the
 * last `historyMax` lines are kept.
 */
export class OwnershipStore {
  readonly #cluster: Cluster
  readonly #watch = new LeaseWatch()
  constructor(destination: Cluster) {
    this.#cluster = destination
  }

  static leaseName(id: string): string {
    return `${instancePrefix}${id}`
  }

  /** Leases first: an owner seen dead is dead, whatever has been claimed since. */
  async read(): Promise<Ownership> {
    const leases = await this.#aggregate('leases', [{ $match: { _id: { $regex: `^${instancePrefix}` } } }])
    const claims = await this.#aggregate('ownership', [])
    return {
      leases: leases.map((lease) => ({
        id: lease['owner'] as string,
        epoch: lease['epoch'] as number,
        drained: (lease['settled'] as number | undefined) ?? 0,
        expiresAt: lease['expiresAt'] as Date,
        expired: this.#watch.isUnrenewed(lease['_id'], {
          epoch: lease['epoch'] as number,
          expiresAt: lease['expiresAt'] as Date,
        }),
        incarnation: lease['incarnation'] as string,
        predecessors: predecessorsOf(lease),
        sessions: (lease['sessions'] as LeaseSessions | null | undefined) ?? null,
        evicted: lease['buried'] === true,
        takesWork: lease['takesWork'] === true,
        // An earlier release does not say.
        atWork: (lease['atWork'] ?? lease['takesWork']) === true,
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

  /** True when the claim is this owner's now. `seen`: the claim as read, undefined when there was none. */
  async claim(key: ClaimKey, seen: Claim | undefined, owner: OwnerToken): Promise<boolean> {
    const epoch = (seen?.epoch ?? 0) + 1
    const last = { owner, since: new Date() }
    const set = { $set: { owner, epoch, last, schemaVersion: 1 } }
    const filter = seen ? { _id: key, epoch: seen.epoch, owner: seen.owner } : { _id: key, epoch: { $exists: false } }
    if (!(await this.#update('ownership', filter, set, !seen))) return false
    const lines = [...(seen ? [historyLine(key, seen.epoch, seen.last)] : []), historyLine(key, epoch, last)]
    await this.#write({ update: 'ownershipHistory', updates: lines })
    const forgotten = Array.from({ length: forgottenAtOnce }, (_, at) => epoch - historyMax - at).filter(
      (one) => one > 0,
    )
    if (forgotten.length > 0) {
      const q = { _id: { $in: forgotten.map((one) => historyID(key, one)) } }
      await this.#write({ delete: 'ownershipHistory', deletes: [{ q, limit: 0 }] })
    }
    return true
  }

  /**
   * Gives claims back, each with the epoch it was claimed in; those that are no longer this owner's are left alone, and what it has
   * claimed again since: a release that was given up as lost may come then.
   */
  async release(claims: Iterable<readonly [key: ClaimKey, epoch: number]>, owner: OwnerToken): Promise<void> {
    const updates = [...claims].map(([_id, epoch]) => ({ q: { _id, owner, epoch }, u: { $set: { owner: null } } }))
    if (updates.length === 0) return
    await this.#write({ update: 'ownership', updates })
  }

  /**
   * Ends the life of an instance whose lease has expired, so that what it owned may be claimed: from the first step on it
   * cannot renew, and after the second none of its writes is still under way, or is carried out when it comes. May be repeated, and by several at once.
   * @returns false where it was not over, or others were quicker
   * @param confirmMS how long that instance may go on believing that it holds its lease; 0 where expiry proves that it does not
   */
  async evict(lease: LeaseView, confirmMS: number, pause: (milliseconds: number) => Promise<void>): Promise<boolean> {
    const name = OwnershipStore.leaseName(lease.id)
    let { epoch } = lease
    if (lease.drained <= epoch && !(await this.#isEvicted(name, epoch))) {
      // As it was seen to stand for so long: one that is renewed in between does not match.
      const unrenewed = confirmMS === 0 ? { expiresAt: lease.expiresAt } : {}
      const dead = { $set: { epoch: epoch + 1, buried: true, takesWork: false, atWork: false, expiresAt: givenUp } }
      if (!(await this.#update('leases', { _id: name, epoch, ...unrenewed }, dead))) return false
      epoch += 1
    }
    await pause(confirmMS)
    const incarnations = [...lease.predecessors, lease.incarnation]
    if (lease.sessions) await closeSessions(this.#cluster, lease.sessions, incarnations, epoch)
    await writesEnded(this.#cluster, incarnations)
    const settled = { $set: { settled: epoch + 1, predecessors: [] } }
    return await this.#update('leases', { _id: name, epoch, buried: true }, settled)
  }

  async #isEvicted(name: string, epoch: number): Promise<boolean> {
    return (await this.#aggregate('leases', [{ $match: { _id: name, epoch, buried: true } }])).length > 0
  }

  async #aggregate(collection: string, pipeline: Document[]): Promise<Document[]> {
    const reply = await this.#cluster.read(
      metadataDatabase,
      { aggregate: collection, pipeline, cursor: { batchSize: 10_000 }, readConcern: { level: 'majority' } },
      { timeoutMS },
    )
    return reply['cursor'].firstBatch as Document[]
  }

  /** True when the filter matched (or, with upsert, nothing stood there). */
  async #update(collection: string, q: Document, u: Document, upsert = false): Promise<boolean> {
    const reply = await this.#write({ update: collection, updates: [{ q, u, upsert }] })
    return reply !== null && (reply['n'] as number) > 0
  }

  async #write(command: Document): Promise<Document | null> {
    const reply = await this.#cluster.write(metadataDatabase, command, { unfenced: true, timeoutMS })
    const [failed] = (reply['writeErrors'] ?? []) as { code: number; errmsg: string }[]
    if (!failed) return reply
    if (failed.code === code.duplicateKey) return null
    throw new Error(`ownership could not be stored: ${failed.errmsg}`)
  }
}

function historyID(key: ClaimKey, epoch: number): string {
  return `${key}:${epoch}`
}

function historyLine(key: ClaimKey, epoch: number, { owner, since }: Claim['last']): Document {
  return { q: { _id: historyID(key, epoch) }, u: { $setOnInsert: { owner, at: since } }, upsert: true }
}
