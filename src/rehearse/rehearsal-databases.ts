import { randomUUID } from 'node:crypto'
import { errorText } from '../domain/error-text.ts'
import { metadataDatabase, metadataDatabases } from '../domain/namespace.ts'
import { type RehearsalCluster, reverseClaimDatabase } from './rehearsal-cluster.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'

/** The fields that a rehearsal reads from the record of a sync. */
interface StoredRecord {
  _id: string
  configuration?: { includeNamespaces?: { database?: string }[] | null; reversible?: boolean }
}

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
  readonly #clusters: Clusters
  readonly #kind: RehearsalKind
  readonly #token = randomUUID()

  constructor(kind: RehearsalKind, clusters: Clusters) {
    this.synced = [`${kind.prefix}_one`, `${kind.prefix}_two`]
    this.probes = `${kind.prefix}_probes`
    const suffix = this.#token.slice(0, 8)
    this.instances = [`rehearsal-1-${suffix}`, `rehearsal-2-${suffix}`]
    this.#clusters = clusters
    this.#kind = kind
  }

  /** All databases that the rehearsal creates. */
  get all(): string[] {
    const claim = this.#kind.reverse ? [reverseClaimDatabase] : []
    return [...this.synced, this.probes, ...metadataDatabases, ...claim]
  }

  /** @throws RehearsalFailure if another rehearsal has claimed them */
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
   * Allows writes where this rehearsal's sync has blocked them, and drops the databases that the rehearsal has
   * created. It tries every step, and returns a description of each failure with its remedy.
   */
  async cleanUp(): Promise<string[]> {
    const { source, destination } = this.#clusters
    const { blockWrites, reverse, prefix } = this.#kind
    const problems: string[] = []
    const attempt = async (what: string, remedy: string, run: () => Promise<unknown>): Promise<void> => {
      await run().catch((error) => problems.push(`${what} failed: ${errorText(error)}; ${remedy}`))
    }
    // A reversed sync has blocked either cluster and has left metadata on both.
    const changed = reverse ? [destination, source] : [destination]
    const names = changed.map(({ name }) => name).join(' and ')
    await attempt('removing the sync', `run tandem clean, and check whether ${names} accepts writes`, async () => {
      const isOwn = await this.#isSyncOwn(changed)
      for (const cluster of changed) if (isOwn && blockWrites) await cluster.allowWrites()
      for (const cluster of changed) {
        if (isOwn) await cluster.drop(metadataDatabases)
        const left = (await cluster.occupied(prefix)).filter((name) => metadataDatabases.includes(name))
        if (left.length > 0) {
          problems.push(
            `${cluster.name} has ${left.join(', ')}, which may belong to a sync that is not the rehearsal's and was left; run tandem clean if there is no such sync`,
          )
        }
      }
    })
    for (const cluster of [destination, source]) {
      const own = [...this.synced, this.probes]
      await attempt(`dropping the databases on ${cluster.name}`, `drop ${own.join(', ')} there`, async () => {
        const claims = this.#claimsOn(cluster)
        const claim = await claims.findOne({ _id: 'claim' })
        if (claim?.token !== this.#token) return
        const others = reverse ? await cluster.otherDatabases(prefix) : []
        if (others.length > 0) {
          problems.push(
            `${cluster.name} has databases that the rehearsal did not create (${others.join(', ')}); they appeared during the rehearsal, which syncs all databases, so drop the copy that you do not need`,
          )
        }
        // The claim is dropped last, so that a repeated attempt still finds it.
        await cluster.drop([...own.filter((name) => name !== claims.dbName), claims.dbName])
      })
    }
    return problems
  }

  /** True if what is stored on these clusters can only be the sync of this rehearsal. */
  async #isSyncOwn(clusters: readonly RehearsalCluster[]): Promise<boolean> {
    const stored = await Promise.all(clusters.map((cluster) => this.#storedOn(cluster)))
    const records = stored.flatMap(({ record }) => (record ? [record] : []))
    const ids = stored.flatMap((one) => one.ids)
    if (!records.every((record) => this.#hasForm(record))) return false
    if (!ids.every((id) => this.instances.includes(id))) return false
    // The filter is the rehearsal's own. A sync without a filter can be recognized by its instances only.
    return ids.length > 0 || (records.length > 0 && !this.#kind.reverse)
  }

  #hasForm({ configuration }: StoredRecord): boolean {
    const included = configuration?.includeNamespaces ?? []
    if (this.#kind.reverse) return configuration?.reversible === true && included.length === 0
    return JSON.stringify(included.map(({ database }) => database)) === JSON.stringify(this.synced)
  }

  /** Returns the record of a sync, and the ids of the instances that have taken part in it or have received a command. */
  async #storedOn(cluster: RehearsalCluster): Promise<{ record: StoredRecord | null; ids: string[] }> {
    const db = cluster.client.db(metadataDatabase)
    const record = await db.collection<StoredRecord>('sync').findOne({ _id: 'sync' })
    const instances = await db.collection<{ _id: string }>('instances').find().toArray()
    const received = await db.collection<{ mongosyncID: string }>('audit').find().toArray()
    return { record, ids: [...instances.map(({ _id }) => _id), ...received.map(({ mongosyncID }) => mongosyncID)] }
  }

  #claimsOn(cluster: RehearsalCluster) {
    const database = this.#kind.reverse ? reverseClaimDatabase : this.probes
    return cluster.client.db(database).collection<{ _id: 'claim'; token: string }>('claim')
  }
}
