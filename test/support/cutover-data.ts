import type { Collection, MongoClient } from 'mongodb'

/** A small data set in which a commit has something to do in each of its steps. */

export interface Thing {
  _id: number | string
  /** Of the unique index. */
  u?: number | string
  by?: string
}

/** Whole seconds after which documents of `app.expiring` expire on the source; long enough that none does in a test. */
export const expireAfterSeconds = 86_400
export const cappedBytes = 1024 * 1024
/** Documents of `app.things`; their `_id`s count from 0. */
export const thingsCount = 100

export const things = (client: MongoClient): Collection<Thing> => client.db('app').collection<Thing>('things')

/** `app.things` with a unique and a hidden index, `app.expiring` with a TTL index, and `app.log`, which is capped. */
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
