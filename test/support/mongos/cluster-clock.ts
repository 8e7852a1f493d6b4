import { findSpan } from '../../../src/domain/raw-bson.ts'
import { type Field, fieldNamed, readFields } from './fields.ts'

/**
 * The highest cluster time that any server has returned. Every reply contains this time, also as operationTime, because
 * the local time of the hidden router or of one shard would be meaningless to a client of the cluster.
 */
export class ClusterClock {
  /** The cluster time as received, with its signature. */
  #latest: { time: bigint; fields: Field[] } | null = null

  observe(reply: Buffer): void {
    if (!findSpan(reply, '$clusterTime')) return
    const clusterTime = fieldNamed(readFields(reply), '$clusterTime') as Field
    const timestamp = fieldNamed(readFields(clusterTime.value), 'clusterTime') as Field
    const time = timestamp.value.readBigUInt64LE(0)
    if (this.#latest && time <= this.#latest.time) return
    // The values are copied, because views would keep the whole reply in memory.
    const fields = [clusterTime, { ...timestamp, name: 'operationTime' }]
    this.#latest = { time, fields: fields.map((field) => ({ ...field, value: Buffer.from(field.value) })) }
  }

  /** Returns the fields `$clusterTime` and `operationTime`. */
  fields(): Field[] {
    return this.#latest?.fields ?? []
  }

  clusterTimeField(): Field[] {
    return this.fields().slice(0, 1)
  }
}
