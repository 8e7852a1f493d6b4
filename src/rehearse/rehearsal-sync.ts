import { metadataDatabase, metadataDatabases } from '../domain/namespace.ts'
import type { CleanUp } from './clean-up.ts'
import type { RehearsalCluster } from './rehearsal-cluster.ts'

/** The fields that a rehearsal reads from the record of a sync. */
interface StoredRecord {
  _id: string
  configuration?: { includeNamespaces?: { database?: string }[] | null; reversible?: boolean }
}

/** What one cluster stores of a sync. */
export interface StoredTraces {
  record: StoredRecord | null
  /** The ids of the instances that have taken part in the sync or have received a command. */
  ids: string[]
}

/** By what a rehearsal recognizes its own sync. */
export interface OwnTraits {
  reverse: boolean
  /** The databases in the filter. A reversible sync has no filter. */
  synced: readonly string[]
  /** The ids of the instances. No other instance has such an id. */
  instances: readonly string[]
}

/**
 * Returns whose sync the clusters store. A trace that is not the rehearsal's own counts more than anything else, so
 * that a sync which somebody has started meanwhile is left.
 * @param wasProven true if the sync has been recognized as the rehearsal's own before
 */
export function ownerOf(
  stored: readonly StoredTraces[],
  own: OwnTraits,
  wasProven: boolean,
): 'rehearsal' | 'other' | 'unknown' {
  const records = stored.flatMap(({ record }) => (record ? [record] : []))
  const ids = stored.flatMap((one) => one.ids)
  if (!records.every((record) => hasForm(record, own))) return 'other'
  if (!ids.every((id) => own.instances.includes(id))) return 'other'
  // The filter is the rehearsal's own. A sync without a filter can be recognized by its instances only.
  return wasProven || ids.length > 0 || (records.length > 0 && !own.reverse) ? 'rehearsal' : 'unknown'
}

function hasForm({ configuration }: StoredRecord, { reverse, synced }: OwnTraits): boolean {
  const included = configuration?.includeNamespaces ?? []
  if (reverse) return configuration?.reversible === true && included.length === 0
  return JSON.stringify(included.map(({ database }) => database)) === JSON.stringify(synced)
}

/** The sync of one rehearsal, as it is stored on the clusters. */
export class RehearsalSync {
  readonly #own: OwnTraits
  /** The clusters on which the sync can store metadata and block writes. The first destination comes first. */
  readonly #clusters: readonly RehearsalCluster[]
  readonly #blockWrites: boolean
  #mayHaveStarted = false
  #wasProven = false

  constructor(own: OwnTraits, clusters: readonly RehearsalCluster[], blockWrites: boolean) {
    this.#own = own
    this.#clusters = clusters
    this.#blockWrites = blockWrites
  }

  /**
   * Sends `start`, and remembers that the stored sync is the rehearsal's own. Therefore the cleanup can allow writes on
   * one cluster while the other cluster, which stores the proof, cannot be read.
   */
  async start(send: () => Promise<void>): Promise<void> {
    this.#mayHaveStarted = true
    await send()
    // If the read fails, the cleanup reads again.
    const stored = await Promise.all(this.#clusters.map(storedOn)).catch(() => [])
    this.#wasProven = ownerOf(stored, this.#own, false) === 'rehearsal'
  }

  /**
   * Allows writes and drops the metadata, if the stored sync is the rehearsal's own. Each cluster has steps of its own,
   * and writes are allowed on every cluster before anything is dropped.
   */
  async remove(cleanUp: CleanUp): Promise<void> {
    const clusters = this.#clusters
    const remedy = this.#remedy
    const stored = await Promise.all(
      clusters.map((cluster) => cleanUp.step(`reading the sync on ${cluster.name}`, remedy, () => storedOn(cluster))),
    )
    const readable = stored.flatMap((one) => (one ? [one] : []))
    const isOwn = ownerOf(readable, this.#own, this.#wasProven) === 'rehearsal'
    if (isOwn && this.#blockWrites) {
      await Promise.all(
        clusters.map((cluster) =>
          cleanUp.step(`allowing writes on ${cluster.name}`, remedy, () => cluster.allowWrites()),
        ),
      )
    }
    for (const [index, cluster] of clusters.entries()) {
      // What could not be read may belong to a sync that somebody else has started meanwhile.
      if (!stored[index]) continue
      if (isOwn) {
        await cleanUp.step(`dropping the metadata on ${cluster.name}`, remedy, () => cluster.drop(metadataDatabases))
        continue
      }
      const listing = `listing the databases on ${cluster.name}`
      const left = await cleanUp.step(listing, remedy, () => cluster.existing(metadataDatabases))
      if (!left?.length) continue
      cleanUp.problems.push(
        `${cluster.name} has ${left.join(', ')}, which may belong to a sync that is not the rehearsal's and was left; run ${this.#command} if there is no such sync`,
      )
    }
    if (isOwn || !this.#blockWrites || !this.#mayHaveStarted) return
    cleanUp.problems.push(
      `the rehearsal had sent start, but its sync was not found, so writes were not allowed again; check whether writes are accepted on ${this.#names}; ${this.#command} allows them`,
    )
  }

  get #names(): string {
    return this.#clusters
      .map(({ name }) => name)
      .sort()
      .join(' and ')
  }

  get #remedy(): string {
    return `run ${this.#command}, and check whether writes are accepted on ${this.#names}`
  }

  get #command(): string {
    const names = this.#blockWrites ? this.#clusters.map(({ name }) => name).sort() : []
    return ['npx tandem clean', ...names.map((name) => `--unblock ${name}`)].join(' ')
  }
}

async function storedOn(cluster: RehearsalCluster): Promise<StoredTraces> {
  const db = cluster.client.db(metadataDatabase)
  const record = await db.collection<StoredRecord>('sync').findOne({ _id: 'sync' })
  const instances = await db.collection<{ _id: string }>('instances').find().toArray()
  const received = await db.collection<{ mongosyncID: string }>('audit').find().toArray()
  return { record, ids: [...instances.map(({ _id }) => _id), ...received.map(({ mongosyncID }) => mongosyncID)] }
}
