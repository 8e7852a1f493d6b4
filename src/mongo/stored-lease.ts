import type { Document } from 'mongodb'
import type { Cluster } from './cluster.ts'
import { code } from './errors.ts'
import { leaseMS } from './lease-watch.ts'
import { UnfencedMetadata } from './unfenced-metadata.ts'

/** The expiry of a lease that is renewed now, by the clock of the destination. */
export const leaseEnd = { $add: ['$$NOW', leaseMS] }

/** The document of one lease in the metadata database. No fence limits its writes, because they decide who may write. */
export class StoredLease {
  readonly #cluster: Cluster
  readonly #metadata: UnfencedMetadata
  readonly #name: string

  constructor(destination: Cluster, name: string) {
    this.#cluster = destination
    this.#metadata = new UnfencedMetadata(destination, { timeoutMS: 5_000 })
    this.#name = name
  }

  async find(): Promise<Document | undefined> {
    const found = await this.#cluster.read(this.#cluster.metadataDatabase, {
      find: 'leases',
      filter: { _id: this.#name },
      readConcern: { level: 'majority' },
    })
    return found['cursor'].firstBatch[0] as Document | undefined
  }

  /**
   * Changes the lease if it matches the filter. Returns true when it matched or, with upsert, when no document existed.
   * @param filter the fields other than `_id`
   */
  async update(filter: Document, change: Document | Document[], upsert = false): Promise<boolean> {
    const update = { update: 'leases', updates: [{ q: { _id: this.#name, ...filter }, u: change, upsert }] }
    const { reply, failed } = await this.#metadata.write(update)
    if (failed[0]) {
      if (failed[0].code === code.duplicateKey) return false
      throw this.#metadata.refused(failed[0], update)
    }
    return (reply['n'] as number) > 0
  }
}

/** Reads a lease ahead of the first attempt to take it. Resolves with null on an error, and the attempt then reads it. */
export async function readAhead(destination: Cluster, name: string): Promise<{ stored: Document | undefined } | null> {
  try {
    return { stored: await new StoredLease(destination, name).find() }
  } catch {
    return null
  }
}
