import { MongoClient } from 'mongodb'
import { beforeAll, describe, expect, it } from 'vitest'
import { clusterOfFile, countsByShard, shardInTwo } from './cluster-of-file.ts'

const context = clusterOfFile({ auth: true })
const admin = () => context.client.db('admin')

describe('a cluster with access control', () => {
  let readerWriter: string
  let replicator: string
  beforeAll(async () => {
    await shardInTwo(context, 'guarded.things')
    readerWriter = await context.cluster.createUser('rw', 'p@ss:word', ['readWriteAnyDatabase'])
    const privileges = [{ resource: { cluster: true }, actions: ['bypassWriteBlockingMode'] }]
    replicator = await context.cluster.createUser('replicator', 'secret', [
      { role: 'bypass', privileges, roles: ['readWriteAnyDatabase'] },
    ])
  })

  it('requires credentials', async () => {
    const withoutUser = context.cluster.uri.replace(/\/\/.*@/, '//')
    await using stranger = new MongoClient(withoutUser)
    await expect(stranger.db('guarded').collection('things').findOne()).rejects.toMatchObject({ code: 13 })
    await using impostor = new MongoClient(readerWriter.replace('p%40ss', 'pass'))
    await expect(impostor.db('guarded').collection('things').findOne()).rejects.toMatchObject({ code: 18 })
    const [shard] = context.cluster.shards
    await using directToShard = new MongoClient(shard?.uri.replace(/\/\/.*@/, '//') ?? '')
    await expect(directToShard.db('guarded').collection('things').findOne()).rejects.toMatchObject({ code: 13 })
  })

  it('lets a user read and write on both shards, and the administrator open a change stream', async () => {
    await using client = new MongoClient(readerWriter)
    const things = client.db('guarded').collection('things')
    await using stream = context.client.watch([], { maxAwaitTimeMS: 300 })
    await stream.tryNext()
    await things.insertMany([{ k: 1 }, { k: 111 }])
    expect(await countsByShard(context, 'guarded.things')).toEqual([1, 1])
    expect((await things.find({}, { sort: { k: 1 }, batchSize: 1 }).toArray()).map(({ k }) => k)).toEqual([1, 111])
    expect(await stream.next()).toMatchObject({ operationType: 'insert' })
    await client.withSession((session) =>
      session.withTransaction(async () => {
        await things.insertMany([{ k: 2 }, { k: 112 }], { session })
      }),
    )
    expect(await countsByShard(context, 'guarded.things')).toEqual([2, 2])
  })

  it('returns the roles and privileges of a user', async () => {
    await using client = new MongoClient(replicator)
    const { authInfo } = await client.db('admin').command({ connectionStatus: 1, showPrivileges: true })
    expect(authInfo.authenticatedUsers).toEqual([{ user: 'replicator', db: 'admin' }])
    expect(authInfo.authenticatedUserRoles).toContainEqual({ role: 'bypass', db: 'admin' })
    expect(authInfo.authenticatedUserPrivileges).toContainEqual({
      resource: { cluster: true },
      actions: expect.arrayContaining(['bypassWriteBlockingMode']),
    })
    const { users } = await admin().command({ usersInfo: 'rw' })
    expect(users).toMatchObject([{ user: 'rw', roles: [{ role: 'readWriteAnyDatabase', db: 'admin' }] }])
  })

  it('blocks writes except those of users with the privilege to bypass write blocking', async () => {
    await using blocked = new MongoClient(readerWriter)
    await using free = new MongoClient(replicator)
    await admin().command({ setUserWriteBlockMode: 1, global: true })
    try {
      const blockedError = { code: 371 }
      await expect(blocked.db('guarded').collection('things').insertOne({ k: 3 })).rejects.toMatchObject(blockedError)
      await expect(blocked.db('guarded').collection('whole').insertOne({ k: 3 })).rejects.toMatchObject(blockedError)
      await expect(blocked.db('guarded').createCollection('more')).rejects.toMatchObject(blockedError)
      await expect(blocked.db('guarded').collection('things').createIndex({ x: 1 })).rejects.toMatchObject(blockedError)
      await free
        .db('guarded')
        .collection('things')
        .insertMany([{ k: 4 }, { k: 114 }])
      await free.db('guarded').collection('whole').insertOne({ k: 4 })
      await free.db('guarded').createCollection('more')
      await free.db('guarded').collection('things').createIndex({ x: 1 })
    } finally {
      await admin().command({ setUserWriteBlockMode: 1, global: false })
    }
    await blocked.db('guarded').collection('things').insertOne({ k: 5 })
  })
})
