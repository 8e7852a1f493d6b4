import { type Document, Int32, type MongoClient } from 'mongodb'

/** A document of these collections. */
export interface Any extends Document {
  _id: number | string
}

/** Creates collections for changes of each kind, before the sync begins. */
export async function seedEachKind(client: MongoClient): Promise<void> {
  const app = client.db('app')
  const rows = (count: number) => Array.from({ length: count }, (_, _id) => ({ _id, n: 0, at: new Date() }))
  for (const name of ['changed', 'dropped', 'recreated', 'renamed', 'other', 'indexed', 'validated', 'expiring']) {
    await app.collection<Any>(name).insertMany(rows(200))
  }
  await app.collection('indexed').createIndex({ n: 1, _id: 1 }, { unique: true, name: 'kept' })
  await app.collection('indexed').createIndex({ at: 1 }, { name: 'gone' })
  await app.collection('expiring').createIndex({ at: 1 }, { expireAfterSeconds: 100_000 })
  await app.createCollection('capped', { capped: true, size: 100_000 })
  await app.collection<Any>('capped').insertMany(rows(50))
  await app.createCollection('spelled', { collation: { locale: 'en', strength: 2 } })
  await app.collection<Any>('spelled').insertMany([{ _id: 'abc' }, { _id: 'DEF' }, { _id: 'g' }])
  await app.createCollection('view', { viewOn: 'changed', pipeline: [] })
  await client.db('emptied').collection<Any>('things').insertMany(rows(10))
}

/** Makes changes of each kind to the collections of `seedEachKind`. */
export async function changeEachKind(client: MongoClient): Promise<void> {
  const app = client.db('app')
  const changed = app.collection<Any>('changed')
  await changed.insertMany(Array.from({ length: 100 }, (_, at) => ({ _id: 1_000 + at })))
  await changed.updateMany({ _id: { $lt: 50 } }, { $inc: { n: 1 } })
  await changed.deleteMany({ _id: { $gte: 50, $lt: 100 } })
  await changed.replaceOne({ _id: 100 }, { b: 1, n: 2 })
  await app.collection('dropped').drop()
  await app.collection('recreated').drop()
  await app.collection<Any>('recreated').insertMany([{ _id: 1, other: true }, { _id: 'new' }])
  // Two collections exchange their names.
  await app.renameCollection('renamed', 'aside')
  await app.renameCollection('other', 'renamed')
  await app.renameCollection('aside', 'other')
  await app.collection<Any>('other').deleteOne({ _id: 3 })
  await app.collection('indexed').dropIndex('gone')
  await app.collection('indexed').createIndex({ at: -1 }, { name: 'new', sparse: true })
  await app.collection<Any>('indexed').updateMany({ _id: { $gte: 100 } }, { $set: { n: 7 } })
  await app.command({ collMod: 'validated', validator: { n: { $type: 'int' } }, validationLevel: 'moderate' })
  await app.collection<Any>('validated').insertOne({ _id: 'new', n: new Int32(1) })
  await app.command({ collMod: 'expiring', index: { name: 'at_1', expireAfterSeconds: 200_000 } })
  await app.collection<Any>('expiring').deleteMany({ _id: { $lt: 20 } })
  await app.collection<Any>('capped').insertMany([{ _id: 'x' }, { _id: 'y' }])
  await app.collection<Any>('spelled').deleteOne({ _id: 'def' })
  await app.collection<Any>('spelled').insertMany([{ _id: 'Def', again: true }])
  await app.collection('created').insertMany([{ a: 1 }, { a: 2 }])
  await app.collection('created').createIndex({ a: 1 }, { unique: true })
  await app.command({ drop: 'view' })
  await app.createCollection('view', { viewOn: 'created', pipeline: [{ $match: { a: 1 } }] })
  await client.db('emptied').dropDatabase()
  await client.db('filled').collection<Any>('things').insertOne({ _id: 1 })
}
