import type { Document } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { clusterOfFile, countsByShard, shardInTwo } from './cluster-of-file.ts'

const context = clusterOfFile()
const admin = () => context.client.db('admin')
const database = (name: string) => context.client.db(name)
const shardName = (index: number) => context.cluster.shards[index]?.name

const indexCounts = (name: string, collection: string) =>
  Promise.all(context.shardClients.map(async (shard) => (await shard.db(name).collection(collection).indexes()).length))

describe('chunks', () => {
  it('are split and moved with their documents', async () => {
    await shardInTwo(context, 'chunks.ranged')
    await database('chunks')
      .collection('ranged')
      .insertMany(Array.from({ length: 200 }, (_, k) => ({ k })))
    expect(await countsByShard(context, 'chunks.ranged')).toEqual([100, 100])
    await admin().command({ split: 'chunks.ranged', find: { k: 20 } })
    await context.cluster.split('chunks.ranged', { k: 10 })
    await admin().command({ moveChunk: 'chunks.ranged', find: { k: 0 }, to: shardName(1), _waitForDelete: true })
    expect(await countsByShard(context, 'chunks.ranged')).toEqual([90, 110])
    expect(await database('chunks').collection('ranged').countDocuments()).toBe(200)
  })

  it.each<[string, Document]>([
    ['split', { middle: { k: 7 } }],
    ['updateZoneKeyRange', { min: { k: 1 }, max: { k: 2 }, zone: null }],
    ['balancerStop', {}],
    ['setUserWriteBlockMode', { global: false }],
  ])('are not changed by %s with a write concern, which a mongos refuses', async (name, fields) => {
    const command = { [name]: name === 'split' ? 'chunks.ranged' : 1, ...fields, writeConcern: { w: 'majority' } }
    await expect(admin().command(command)).rejects.toMatchObject({ codeName: 'InvalidOptions' })
  })

  it.each<[string, Document, Document]>([
    ['hashed', { _id: 'hashed' }, { numInitialChunks: 4 }],
    ['compound', { a: 1, b: 1 }, {}],
    ['compoundhashed', { a: 1, b: 'hashed' }, {}],
    ['unique', { a: 1 }, { unique: true }],
    ['simple', { a: 1 }, { collation: { locale: 'simple' } }],
  ])('are created for a %s key', async (name, key, options) => {
    await admin().command({ shardCollection: `keys.${name}`, key, ...options })
    const documents = Array.from({ length: 100 }, (_, index) => ({ a: index, b: index }))
    await database('keys').collection(name).insertMany(documents)
    expect(await database('keys').collection(name).countDocuments()).toBe(100)
    const entry = await database('config')
      .collection<{ _id: string }>('collections')
      .findOne({ _id: `keys.${name}` })
    expect(entry).toMatchObject({ key, unique: options['unique'] ?? false })
    if (name === 'hashed') expect((await countsByShard(context, 'keys.hashed')).every((count) => count > 20)).toBe(true)
  })

  it('have a balancer that can be stopped and started', async () => {
    await admin().command({ balancerStop: 1 })
    expect(await admin().command({ balancerStatus: 1 })).toMatchObject({ mode: 'off' })
    await admin().command({ balancerStart: 1 })
    expect(await admin().command({ balancerStatus: 1 })).toMatchObject({ mode: 'full' })
  })
})

describe('DDL', () => {
  const defined = () => database('defined')
  beforeAll(async () => {
    await shardInTwo(context, 'defined.things')
    await defined()
      .collection('things')
      .insertMany(Array.from({ length: 200 }, (_, k) => ({ k, v: k })))
  })

  it('creates and drops indexes on both shards', async () => {
    await defined().collection('things').createIndex({ v: 1 })
    expect(await indexCounts('defined', 'things')).toEqual([3, 3])
    await defined().collection('things').dropIndex('v_1')
    expect(await indexCounts('defined', 'things')).toEqual([2, 2])
    const withoutKey = defined().collection('things').createIndex({ zz: 1 }, { unique: true })
    await expect(withoutKey).rejects.toMatchObject({ code: 67 })
  })

  it('makes an index unique in two steps on both shards', async () => {
    await defined().collection('things').createIndex({ k: 1, v: 1 })
    const change = (index: Document) =>
      defined().command({ collMod: 'things', index: { keyPattern: { k: 1, v: 1 }, ...index } })
    await change({ prepareUnique: true })
    await change({ unique: true })
    for (const shard of context.shardClients) {
      expect(await shard.db('defined').collection('things').indexes()).toContainEqual(
        expect.objectContaining({ name: 'k_1_v_1', unique: true }),
      )
    }
  })

  it('sets and removes a validator', async () => {
    await defined().command({ collMod: 'things', validator: { k: { $type: 'number' } } })
    await expect(defined().collection('things').insertOne({ k: 'text' })).rejects.toMatchObject({ code: 121 })
    await defined().command({ collMod: 'things', validator: {} })
  })

  it('creates, changes and drops views', async () => {
    const view = await defined().createCollection('view', {
      viewOn: 'things',
      pipeline: [{ $match: { k: { $lt: 10 } } }],
    })
    expect(await view.countDocuments()).toBe(10)
    expect(await view.estimatedDocumentCount()).toBe(10)
    await defined().command({ collMod: 'view', viewOn: 'things', pipeline: [{ $match: { k: { $lt: 20 } } }] })
    expect((await view.find().toArray()).length).toBe(20)
    await view.drop()
  })

  it('creates capped, collated, clustered and time-series collections', async () => {
    await defined().createCollection('capped', { capped: true, size: 4096, max: 3 })
    for (let i = 0; i < 5; i++) await defined().collection('capped').insertOne({ i })
    expect(await defined().collection('capped').countDocuments()).toBe(3)
    await defined().createCollection('folded', { collation: { locale: 'en', strength: 2 } })
    await defined().collection('folded').insertOne({ a: 'X' })
    expect(await defined().collection('folded').countDocuments({ a: 'x' })).toBe(1)
    await defined().createCollection('clustered', { clusteredIndex: { key: { _id: 1 }, unique: true } })
    await defined().createCollection('times', { timeseries: { timeField: 't', metaField: 'm' } })
    await defined().collection('times').insertOne({ t: new Date(), m: 1 })
    expect(await defined().collection('times').find().toArray()).toHaveLength(1)
    const listed = await defined().listCollections({ name: 'clustered' }).toArray()
    expect(listed).toMatchObject([{ options: { clusteredIndex: { unique: true } } }])
  })

  it('renames sharded and unsharded collections', async () => {
    await defined().collection('things').rename('renamed')
    expect(await countsByShard(context, 'defined.renamed')).toEqual([100, 100])
    expect(await defined().collection('renamed').countDocuments()).toBe(200)
    await defined().collection('plain').insertOne({})
    await defined().collection('plain').rename('simple')
    expect(await defined().collection('simple').countDocuments()).toBe(1)
  })

  it('drops collections and databases on both shards', async () => {
    await defined().command({ drop: 'renamed' })
    for (const shard of context.shardClients) {
      expect(await shard.db('defined').listCollections({ name: 'renamed' }).toArray()).toEqual([])
    }
    await expect(defined().command({ drop: 'missing' })).rejects.toMatchObject({ code: 26 })
    await defined().dropDatabase()
    expect((await admin().admin().listDatabases()).databases.map(({ name }) => name)).not.toContain('defined')
  })
})

describe('a shard key', () => {
  it('is refined and replaced', async () => {
    await admin().command({ shardCollection: 'rekeyed.things', key: { a: 1 } })
    const things = database('rekeyed').collection('things')
    await things.insertMany(Array.from({ length: 200 }, (_, index) => ({ a: index, b: index })))
    await things.createIndex({ a: 1, b: 1 })
    await admin().command({ refineCollectionShardKey: 'rekeyed.things', key: { a: 1, b: 1 } })
    await admin().command({ reshardCollection: 'rekeyed.things', key: { b: 1 }, numInitialChunks: 2 })
    const entries = database('config').collection<{ _id: string }>('collections')
    expect(await entries.findOne({ _id: 'rekeyed.things' })).toMatchObject({ key: { b: 1 } })
    expect(await things.countDocuments()).toBe(200)
    await expect(admin().command({ split: 'rekeyed.nothing', middle: { a: 1 } })).rejects.toThrow(/not sharded/)
  })
})

describe('a database', () => {
  it('moves to another primary shard', async () => {
    await admin().command({ enableSharding: 'moved', primaryShard: shardName(0) })
    await database('moved').collection('things').insertOne({ k: 1 })
    await admin().command({ movePrimary: 'moved', to: shardName(1) })
    expect(await context.shardClients[1]?.db('moved').collection('things').countDocuments()).toBe(1)
    await database('moved')
      .collection('things')
      .findOneAndUpdate({ k: 1 }, { $set: { j: 1 } })
    await database('moved').collection('things').insertOne({ k: 2 })
    expect(await database('moved').collection('things').countDocuments()).toBe(2)
  })
})

describe('the catalog', () => {
  it('is read through the mongos', async () => {
    const config = database('config')
    const read = (name: string) => config.collection(name).find().toArray()
    expect((await read('shards')).map(({ _id }) => String(_id))).toEqual(context.cluster.shards.map(({ name }) => name))
    expect(await read('version')).toMatchObject([{ clusterId: expect.anything() }])
    expect((await read('databases')).length).toBeGreaterThan(0)
    const [{ uuid }] = (await config
      .collection('collections')
      .find({ _id: /^chunks\./ as never })
      .toArray()) as Document[] as [Document]
    expect(await config.collection('chunks').countDocuments({ uuid })).toBeGreaterThan(2)
    const joined = await config
      .collection('collections')
      .aggregate([{ $lookup: { from: 'chunks', localField: 'uuid', foreignField: 'uuid', as: 'chunks' } }])
      .toArray()
    expect(joined.length).toBeGreaterThan(2)
  })
})

describe('write blocking', () => {
  it('rejects inserts and DDL through the mongos', async () => {
    await database('blocked').collection('things').insertOne({ k: 1 })
    await admin().command({ setUserWriteBlockMode: 1, global: true })
    const refused = { code: 371 }
    try {
      await expect(database('blocked').createCollection('other')).rejects.toMatchObject(refused)
      const insert = database('blocked').collection('things').insertOne({ k: 2 })
      await expect(insert).rejects.toMatchObject(refused)
    } finally {
      await admin().command({ setUserWriteBlockMode: 1, global: false })
    }
    await database('blocked').collection('things').insertOne({ k: 3 })
  })
})
