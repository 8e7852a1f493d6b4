import { randomUUID } from 'node:crypto'
import { metadataDatabases } from '../domain/namespace.ts'
import { CleanUp } from './clean-up.ts'
import { type RehearsalCluster, reverseClaimDatabase } from './rehearsal-cluster.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'
import { RehearsalSync } from './rehearsal-sync.ts'

type Clusters = Record<'source' | 'destination', RehearsalCluster>

/** What a rehearsal does to the clusters, besides creating its databases. */
export interface RehearsalKind {
  prefix: string
  blockWrites: boolean
  reverse: boolean
}

/**
 * The databases of one rehearsal. It claims them before it writes anything, and it drops only claimed databases.
 * Therefore another rehearsal with the same prefix, or a sync that somebody starts meanwhile, loses nothing.
 */
export class RehearsalDatabases {
  /** The databases of the generated data. They are all that is synced, because a rehearsal of `reverse` needs empty clusters. */
  readonly synced: readonly [string, string]
  readonly probes: string
  /** The ids of the instances. No other instance has such an id, so a sync can be recognized by them. */
  readonly instances: readonly [string, string]
  readonly claimDatabase: string
  readonly sync: RehearsalSync
  readonly #clusters: Clusters
  readonly #kind: RehearsalKind
  readonly #token = randomUUID()

  constructor(kind: RehearsalKind, clusters: Clusters) {
    this.synced = [`${kind.prefix}_one`, `${kind.prefix}_two`]
    this.probes = `${kind.prefix}_probes`
    const suffix = this.#token.slice(0, 8)
    this.instances = [`rehearsal-1-${suffix}`, `rehearsal-2-${suffix}`]
    this.claimDatabase = kind.reverse ? reverseClaimDatabase : this.probes
    this.#clusters = clusters
    this.#kind = kind
    const { source, destination } = clusters
    const { synced, instances } = this
    // A reversed sync has blocked either cluster and has left metadata on both.
    const changed = kind.reverse ? [destination, source] : [destination]
    this.sync = new RehearsalSync({ reverse: kind.reverse, synced, instances }, changed, kind.blockWrites)
  }

  /** All databases that the rehearsal creates. */
  get all(): string[] {
    return [...new Set([...this.synced, this.probes, ...metadataDatabases, this.claimDatabase])]
  }

  /**
   * A rehearsal of the other kind has its claim in another database. Therefore `refuseConflicts` must follow.
   * @throws RehearsalFailure if another rehearsal has claimed them
   */
  async claim(): Promise<void> {
    for (const cluster of Object.values(this.#clusters)) {
      const claims = this.#claimsOn(cluster)
      const claim = await claims.findOneAndUpdate(
        { _id: 'claim' },
        { $setOnInsert: { token: this.#token } },
        { upsert: true, returnDocument: 'after', writeConcern: { w: 'majority' } },
      )
      if (claim?.token !== this.#token) {
        throw new RehearsalFailure(
          `another rehearsal uses ${claims.dbName} on ${cluster.name}; ${this.#kind.reverse ? 'wait until it has ended' : 'give another --prefix'}`,
        )
      }
    }
  }

  /** Drops the database of the probes before a sync of all databases. The claim of such a rehearsal is in another one. */
  async dropProbes(): Promise<void> {
    for (const cluster of Object.values(this.#clusters)) await cluster.drop([this.probes])
  }

  /**
   * Gives up the claims before anything else has been written. It drops only the collection of the claim, because a
   * rehearsal of the other kind may use the database. Returns a description of each failure with its remedy.
   */
  async release(): Promise<string[]> {
    const cleanUp = new CleanUp()
    for (const cluster of Object.values(this.#clusters)) {
      const claims = this.#claimsOn(cluster)
      await cleanUp.step(`releasing the claim on ${cluster.name}`, `drop ${claims.namespace} there`, async () => {
        // While the claim is stored, no other rehearsal can have a claim in this collection.
        if (await this.#isClaimed(cluster)) await claims.drop({ writeConcern: { w: 'majority' } })
      })
    }
    return cleanUp.problems
  }

  /**
   * Allows writes where this rehearsal's sync has blocked them, and drops the databases that the rehearsal has
   * created. It tries every step, and returns a description of each failure with its remedy.
   * @param retryMS how long steps are repeated after transient errors
   */
  async cleanUp(retryMS?: number): Promise<string[]> {
    const { source, destination } = this.#clusters
    const { reverse, prefix } = this.#kind
    const cleanUp = new CleanUp(retryMS)
    await this.sync.remove(cleanUp)
    for (const cluster of [destination, source]) {
      const own = [...this.synced, this.probes]
      let others: string[] = []
      await cleanUp.step(`dropping the databases on ${cluster.name}`, `drop ${own.join(', ')} there`, async () => {
        if (!(await this.#isClaimed(cluster))) return
        if (reverse) others = await cluster.otherDatabases(prefix)
        // The claim is dropped last, so that a repeated attempt still finds it.
        await cluster.drop([...own.filter((name) => name !== this.claimDatabase), this.claimDatabase])
      })
      if (others.length > 0) {
        cleanUp.problems.push(
          `${cluster.name} has databases that the rehearsal did not create (${others.join(', ')}); they appeared during the rehearsal, which syncs all databases, so drop the copy that you do not need`,
        )
      }
    }
    return cleanUp.problems
  }

  async #isClaimed(cluster: RehearsalCluster): Promise<boolean> {
    return (await this.#claimsOn(cluster).findOne({ _id: 'claim' }))?.token === this.#token
  }

  #claimsOn(cluster: RehearsalCluster) {
    return cluster.client.db(this.claimDatabase).collection<{ _id: 'claim'; token: string }>('claim')
  }
}
