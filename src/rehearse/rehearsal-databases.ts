import { randomUUID } from 'node:crypto'
import { errorText } from '../domain/error-text.ts'
import { metadataDatabase, metadataDatabases } from '../domain/namespace.ts'
import type { RehearsalCluster } from './rehearsal-cluster.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'

/** The fields that a rehearsal reads from the record of a sync. */
interface StoredRecord {
  _id: string
  configuration?: { includeNamespaces?: { database?: string }[] | null }
}

type Clusters = Record<'source' | 'destination', RehearsalCluster>

/**
 * The databases of one rehearsal. It claims them before it writes anything, and it drops only claimed databases.
 * Therefore another rehearsal with the same prefix, or a sync that somebody starts meanwhile, loses nothing.
 */
export class RehearsalDatabases {
  /** The databases that are synced. */
  readonly synced: readonly [string, string]
  readonly probes: string
  readonly #clusters: Clusters
  readonly #token = randomUUID()

  constructor(prefix: string, clusters: Clusters) {
    this.synced = [`${prefix}_one`, `${prefix}_two`]
    this.probes = `${prefix}_probes`
    this.#clusters = clusters
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
        throw new RehearsalFailure(`another rehearsal uses ${this.probes} on ${cluster.name}; give another --prefix`)
      }
    }
  }

  /**
   * Allows writes on cluster1 if this rehearsal's sync has blocked them, and drops the databases that the rehearsal has
   * created. It tries every step, and returns a description of each failure with its remedy.
   */
  async cleanUp(blockWrites: boolean): Promise<string[]> {
    const { source, destination } = this.#clusters
    const problems: string[] = []
    const attempt = async (what: string, remedy: string, run: () => Promise<unknown>): Promise<void> => {
      await run().catch((error) => problems.push(`${what} failed: ${errorText(error)}; ${remedy}`))
    }
    await attempt('removing the sync', `run tandem clean, and check whether cluster1 accepts writes`, async () => {
      if (!(await this.#isSyncOwn())) return
      if (blockWrites) await destination.client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
      await destination.drop(metadataDatabases)
    })
    for (const cluster of [destination, source]) {
      const names = [...this.synced, this.probes]
      const remedy = `drop ${names.join(', ')} on ${cluster.name}`
      await attempt(`dropping the databases on ${cluster.name}`, remedy, async () => {
        const claim = await this.#claimsOn(cluster).findOne({ _id: 'claim' })
        // The claim is dropped last, so that a repeated attempt still finds it.
        if (claim?.token === this.#token) await cluster.drop(names)
      })
    }
    return problems
  }

  /** True if the sync that is stored on cluster1 includes exactly these databases. */
  async #isSyncOwn(): Promise<boolean> {
    const records = this.#clusters.destination.client.db(metadataDatabase).collection<StoredRecord>('sync')
    const record = await records.findOne({ _id: 'sync' })
    const included = record?.configuration?.includeNamespaces ?? []
    return JSON.stringify(included.map(({ database }) => database)) === JSON.stringify(this.synced)
  }

  #claimsOn(cluster: RehearsalCluster) {
    return cluster.client.db(this.probes).collection<{ _id: 'claim'; token: string }>('claim')
  }
}
