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
/** Time limit of a command, ms by the clock of this process. */
const timeoutMS = 5_000
/**
 * The most rows that a read returns, those with the newest heartbeats. All rows must fit in one batch, because
 * `UnfencedMetadata.read` sends no getMore. A sync has a row for each mongosyncID that it has ever had.
 */
const rowsMax = 1_000
const newest: Document[] = [{ $sort: { clusterTime: -1 } }, { $limit: rowsMax }]
const withAge: Document[] = [...newest, { $set: { ageMS: ageMS('$clusterTime', '$at') } }]

/**
 * Stores heartbeats in the metadata database, so that a sync needs no other service. The age of a heartbeat is the
 * difference between the destination's cluster times at the heartbeat and at the read, so wrong clocks of hosts and
 * routers do not matter. Ages are exact to a second. There are no notifications: the other instances find a change at
 * their next read.
 *
 * Heartbeats are not fenced, because an instance without a lease is also alive.
 */
export class MongoLiveness implements Liveness {
  readonly ttlMS: number
  onNotified: (() => void) | null = null
  readonly inRounds: RoundPart
  readonly #metadata: UnfencedMetadata
  /** How long each instance has had the same newest heartbeat, by the clock of this process. */
  readonly #heartbeatTimes = new Unchanged()
  /**
   * The stored rows that a round of the coordination read last, and the time of that read (ms, `performance.now()`);
   * negative infinity before the first read.
   */
  #lastRound: { rows: Document[]; readAt: number } = { rows: [], readAt: Number.NEGATIVE_INFINITY }

  /**
   * The caller closes the cluster.
   * @param options `ttlMS`: an instance whose newest heartbeat is older (ms) counts as lost; `database`: the metadata
   * database, by default that of the cluster
   */
  constructor(destination: Cluster, { ttlMS = 10_000, database }: { ttlMS?: number; database?: string } = {}) {
    this.#metadata = new UnfencedMetadata(destination, { timeoutMS }, database)
    this.ttlMS = ttlMS
    const take = (rows: Document[]): void => {
      this.#lastRound = { rows, readAt: performance.now() }
    }
    this.inRounds = { collection, pipeline: withAge, take }
  }

  async publish(heartbeat: InstanceHeartbeat): Promise<void> {
    const { id, ...fields } = storedHeartbeat(heartbeat)
    // Instances of earlier releases compute the age from `at`.
    const $currentDate = { at: true, clusterTime: currentClusterTime }
    const update = { q: { _id: id }, u: { $set: fields, $currentDate }, upsert: true }
    const failed = await this.#write({ update: collection, updates: [update] })
    if (!failed) return
    const what = 'the heartbeat could not be stored'
    // Two processes inserted the same new id at the same time. The row exists now, so the next attempt updates it.
    if (failed.code === code.duplicateKey) await this.#writeOrThrow({ update: collection, updates: [update] }, what)
    else throw new Error(`${what}: ${failed.errmsg}`)
  }

  async instances(): Promise<ObservedInstance[]> {
    const rows = await this.#metadata.read({
      aggregate: collection,
      pipeline: withAge,
      cursor: { batchSize: rowsMax + 1 },
    })
    return this.#observed(rows, 0)
  }

  recentInstances(maxAgeMS: number): ObservedInstance[] | null {
    const { rows, readAt } = this.#lastRound
    const elapsedMS = performance.now() - readAt
    return elapsedMS > maxAgeMS ? null : this.#observed(rows, elapsedMS)
  }

  #observed(rows: Document[], elapsedMS: number): ObservedInstance[] {
    const observed = rows.map(({ _id, ageMS, ...row }) => {
      const time = timeOf(row)
      // The cluster time does not advance while the primary's clock is behind it, for instance after that clock was set
      // back. The age is then measured by the clock of this process.
      const { unchangedMS } = this.#heartbeatTimes.observe(_id, time)
      return observedInstance({ id: _id, ...row }, time, Math.max(ageMS + elapsedMS, unchangedMS), this.ttlMS)
    })
    return inOrderOfIds(observed)
  }

  async remove(id: string): Promise<void> {
    const command = { delete: collection, deletes: [{ q: { _id: id }, limit: 1 }] }
    await this.#writeOrThrow(command, 'the row of an instance could not be removed')
  }

  notify(): void {}

  async close(): Promise<void> {}

  /** @param what describes the failure of the write, for the error text */
  async #writeOrThrow(command: Document, what: string): Promise<void> {
    const failed = await this.#write(command)
    if (failed) throw new Error(`${what}: ${failed.errmsg}`)
  }

  /** Sends a command with one statement. Returns the statement's write error, or undefined if it succeeded. */
  async #write(command: Document): Promise<StatementFailure | undefined> {
    return (await this.#metadata.write(command)).failed[0]
  }
}

/**
 * Returns the cluster time of a heartbeat or, if an earlier release stored it without one, its time by the server's
 * clock. The result is only compared for equality.
 */
function timeOf({ clusterTime, at }: Document): string {
  return String(clusterTime ?? Number(at))
}
