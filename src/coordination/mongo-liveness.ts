import type { Document } from 'mongodb'
import { Unchanged } from '../domain/unchanged.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { ageMS, currentClusterTime } from '../mongo/cluster-age.ts'
import { code } from '../mongo/errors.ts'
import { type StatementFailure, UnfencedMetadata } from '../mongo/unfenced-metadata.ts'
import type { InstanceHeartbeat, Liveness, ObservedInstance } from './liveness.ts'
import type { RoundPart } from './round-parts.ts'
import { inOrderOfIds, observedInstance, storedHeartbeat } from './stored-heartbeat.ts'

const collection = 'members'
/** Time limit of a command by the client's clock, ms. */
const timeoutMS = 5_000
/** All rows must fit in one batch, so that no getMore is needed. No sync runs nearly as many instances. */
const instancesMax = 1_000
const withAge: Document[] = [{ $limit: instancesMax }, { $set: { ageMS: ageMS('$clusterTime', '$at') } }]

/**
 * Stores heartbeats in the metadata database, so that a sync needs no other service. The destination's cluster time gives
 * the time of a heartbeat and the time of a read, so skewed clocks of hosts and routers do not matter. Ages are exact to a
 * second. There are no notifications: the other instances see a change at their next read.
 *
 * Heartbeats are not fenced, because an instance without a lease is alive too.
 */
export class MongoLiveness implements Liveness {
  readonly ttlMS: number
  onNotified: (() => void) | null = null
  readonly inRounds: RoundPart
  readonly #metadata: UnfencedMetadata
  /** The time of the newest heartbeat of each instance. */
  readonly #newest = new Unchanged()
  /** What a round has read last, as it is stored, and when (ms, `performance.now()`). */
  #inRound: { rows: Document[]; readAt: number } = { rows: [], readAt: Number.NEGATIVE_INFINITY }

  /** The caller closes the cluster. `ttlMS` is in milliseconds; `database` is by default that of the cluster. */
  constructor(destination: Cluster, { ttlMS = 10_000, database }: { ttlMS?: number; database?: string } = {}) {
    this.#metadata = new UnfencedMetadata(destination, { timeoutMS }, database)
    this.ttlMS = ttlMS
    const take = (rows: Document[]): void => {
      this.#inRound = { rows, readAt: performance.now() }
    }
    this.inRounds = { collection, pipeline: withAge, take }
  }

  async publish(heartbeat: InstanceHeartbeat): Promise<void> {
    const { id, ...fields } = storedHeartbeat(heartbeat)
    // Earlier releases read `at`.
    const $currentDate = { at: true, clusterTime: currentClusterTime }
    const update = { q: { _id: id }, u: { $set: fields, $currentDate }, upsert: true }
    const failed = await this.#write({ update: collection, updates: [update] })
    // Two processes inserted the same new id at the same time. The row exists now, so the next attempt replaces it.
    if (failed?.code === code.duplicateKey) await this.#writeOrThrow({ update: collection, updates: [update] })
    else if (failed) throw new Error(`the heartbeat could not be stored: ${failed.errmsg}`)
  }

  async instances(): Promise<ObservedInstance[]> {
    const rows = await this.#metadata.read({
      aggregate: collection,
      pipeline: withAge,
      cursor: { batchSize: instancesMax + 1 },
    })
    return this.#observed(rows, 0)
  }

  recentInstances(maxAgeMS: number): ObservedInstance[] | null {
    const { rows, readAt } = this.#inRound
    const elapsedMS = performance.now() - readAt
    return elapsedMS > maxAgeMS ? null : this.#observed(rows, elapsedMS)
  }

  #observed(rows: Document[], elapsedMS: number): ObservedInstance[] {
    const observed = rows.map(({ _id, ageMS, ...row }) => {
      const time = timeOf(row)
      // The cluster time stands still while the clock of a primary is behind it, for instance after that clock was set back.
      const { unchangedMS } = this.#newest.observe(_id, time)
      return observedInstance({ id: _id, ...row }, time, Math.max(ageMS + elapsedMS, unchangedMS), this.ttlMS)
    })
    return inOrderOfIds(observed)
  }

  async remove(id: string): Promise<void> {
    await this.#writeOrThrow({ delete: collection, deletes: [{ q: { _id: id }, limit: 1 }] })
  }

  notify(): void {}

  async close(): Promise<void> {}

  async #writeOrThrow(command: Document): Promise<void> {
    const failed = await this.#write(command)
    if (failed) throw new Error(`a write to ${collection} failed: ${failed.errmsg}`)
  }

  /** Returns the statement's write error, or undefined when it succeeded. */
  async #write(command: Document): Promise<StatementFailure | undefined> {
    return (await this.#metadata.write(command)).failed[0]
  }
}

/** Returns the time of a heartbeat. Earlier releases do not store its cluster time. */
function timeOf({ clusterTime, at }: Document): string {
  return String(clusterTime ?? Number(at))
}
