import type { Db, MongoClient } from 'mongodb'
import { Random } from './random.ts'
import { newFields } from './workload-values.ts'

const documentsPerInsert = 1_000
/** With a `filler` of this length, a document is about 1 KB long. */
const fillerLength = 700

/**
 * Fills the source with the data to copy: one large collection, and small ones of other kinds. Returns the data's size
 * in bytes, uncompressed.
 */
export async function seedSource(
  client: MongoClient,
  {
    databases,
    megabytes,
    isSharded,
    seed,
  }: { databases: readonly [string, string]; megabytes: number; isSharded: boolean; seed: number },
  signal: AbortSignal,
): Promise<number> {
  const random = new Random(seed)
  const [first, second] = databases.map((name) => client.db(name)) as [Db, Db]
  if (isSharded) {
    await client.db('admin').command({ shardCollection: `${databases[0]}.large`, key: { _id: 'hashed' } })
  }
  const large = first.collection<{ _id: number }>('large')
  for (let at = 0; at < megabytes * 1_000; at += documentsPerInsert) {
    signal.throwIfAborted()
    const documents = Array.from({ length: documentsPerInsert }, (_, index) => ({
      _id: at + index,
      ...newFields(random),
      filler: random.fraction().toString(36).repeat(100).slice(0, fillerLength),
    }))
    await large.insertMany(documents)
  }
  await large.createIndex({ n: 1 })
  await large.createIndex({ expires: 1 }, { expireAfterSeconds: 3_600 })
  await second.createCollection('collated', { collation: { locale: 'en', strength: 2 } })
  await second.collection<{ _id: string }>('collated').insertMany([{ _id: 'a' }, { _id: 'é' }])
  await second.createCollection('ring', { capped: true, size: 65_536 })
  await second.collection('ring').insertMany(Array.from({ length: 100 }, (_, n) => ({ n })))
  await second.createCollection('first_view', { viewOn: 'collated', pipeline: [] })
  const sizes = await Promise.all([first, second].map((db) => db.command({ dbStats: 1 })))
  return sizes.reduce((sum, { dataSize }) => sum + Number(dataSize), 0)
}
