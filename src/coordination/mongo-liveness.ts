import type { Document } from 'mongodb'
import { metadataDatabase } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code } from '../mongo/errors.ts'
import type { InstanceHeartbeat, Liveness, SeenInstance } from './liveness.ts'
import { inOrderOfIds, seenInstance, storedHeartbeat } from './stored-heartbeat.ts'

const collection = 'members'
/** Of a command, by the client's clock. */
const timeoutMS = 5_000
/** All rows come in one batch, so that there is no cursor to lose: far more than instances make sense. */
const instancesMax = 1_000

/**
 * Liveness in the metadata database, where every sync has it without another service. The time of a beat and "now" are
 * the server's, so hosts with skewed clocks agree. Through mongos they are the router's: routers must agree to well
 * within `ttlMS`. There is no notification: others find out when they look next.
 *
 * Beats are not fenced: an instance without any lease is alive too.
 */
export class MongoLiveness implements Liveness {
  readonly ttlMS: number
  onNotified: (() => void) | null = null
  readonly #cluster: Cluster

  /** The cluster stays its owner's to close. `ttlMS`: ms. */
  constructor(destination: Cluster, { ttlMS = 10_000 }: { ttlMS?: number } = {}) {
    this.#cluster = destination
    this.ttlMS = ttlMS
  }

  async publish(beat: InstanceHeartbeat): Promise<void> {
    const { id, ...fields } = storedHeartbeat(beat)
    // Literal: in a pipeline a text that begins with `$` would be taken for the name of a field.
    const row = { $replaceWith: { $literal: { _id: id, ...fields } } }
    const update = { q: { _id: id }, u: [row, { $set: { at: '$$NOW' } }], upsert: true }
    const failed = await this.#write({ update: collection, updates: [update] })
    // Two processes brought the same new id at once. The row is there now, so the next attempt replaces it.
    if (failed?.code === code.duplicateKey) await this.#writeOrThrow({ update: collection, updates: [update] })
    else if (failed) throw new Error(`beat not stored: ${failed.errmsg}`)
  }

  async instances(): Promise<SeenInstance[]> {
    const reply = await this.#cluster.read(
      metadataDatabase,
      {
        aggregate: collection,
        pipeline: [{ $limit: instancesMax }, { $set: { ageMS: { $subtract: ['$$NOW', '$at'] } } }],
        cursor: { batchSize: instancesMax + 1 },
        readConcern: { level: 'majority' },
      },
      { timeoutMS },
    )
    const rows = reply['cursor'].firstBatch as Document[]
    return inOrderOfIds(rows.map(({ _id, ageMS, ...row }) => seenInstance({ id: _id, ...row }, ageMS, this.ttlMS)))
  }

  async forget(id: string): Promise<void> {
    await this.#writeOrThrow({ delete: collection, deletes: [{ q: { _id: id }, limit: 1 }] })
  }

  notify(): void {}

  async close(): Promise<void> {}

  async #writeOrThrow(command: Document): Promise<void> {
    const failed = await this.#write(command)
    if (failed) throw new Error(`${collection} not written: ${failed.errmsg}`)
  }

  /** What the statement failed with, if it did. */
  async #write(command: Document): Promise<{ code: number; errmsg: string } | undefined> {
    const reply = await this.#cluster.write(metadataDatabase, command, { unfenced: true, timeoutMS })
    return (reply['writeErrors'] as { code: number; errmsg: string }[] | undefined)?.[0]
  }
}
