import type { Collection, MongoClient } from 'mongodb'

/** A small data set that gives every step of a commit some work. */

export interface Thing {
  _id: number | string
  /** Value of the unique index. */
  u?: number | string
  by?: string
}

/** Seconds after which documents of `app.expiring` expire on the source; long enough that none expires during a test. */
export const expireAfterSeconds = 86_400
export const cappedBytes = 1024 * 1024
/** Number of documents of `app.things`. Their `_id`s are the numbers from 0. */
export const thingsCount = 100

export const things = (client: MongoClient): Collection<Thing> => client.db('app').collection<Thing>('things')

/** Creates `app.things` with a unique and a hidden index, `app.expiring` with a TTL index, and the capped `app.log`. */
export async function seedForCutover(client: MongoClient): Promise<void> {
  const app = client.db('app')
  await app.createCollection('log', { capped: true, size: cappedBytes })
  await app.collection('log').insertMany(Array.from({ length: 20 }, (_, at) => ({ at })))
  await app.collection('expiring').insertMany(Array.from({ length: 20 }, () => ({ at: new Date() })))
  await app.collection('expiring').createIndex({ at: 1 }, { expireAfterSeconds })
  await things(client).insertMany(Array.from({ length: thingsCount }, (_, _id) => ({ _id, u: _id, by: 'seed' })))
  await things(client).createIndex({ u: 1 }, { unique: true })
  await things(client).createIndex({ by: 1 }, { hidden: true })
}
