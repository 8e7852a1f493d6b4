import { beforeAll, describe, expect, it } from 'vitest'
import { clusterOfFile, countsByShard, shardInTwo } from './cluster-of-file.ts'

type Numbered = { _id: number; k: number; v?: number }

const context = clusterOfFile()
const sharded = () => context.client.db('ledger').collection<Numbered>('cut')
const whole = () => context.client.db('ledger').collection<Numbered>('whole')

describe('transactions', () => {
  beforeAll(async () => {
    await shardInTwo(context, 'ledger.cut')
    await whole().insertOne({ _id: 0, k: 0 })
  })

  it('commit on two shards and in an unsharded collection', async () => {
    await context.client.withSession((session) =>
      session.withTransaction(
        async () => {
          await sharded().insertMany(
            [1, 150].map((k) => ({ _id: k, k })),
            { session },
          )
          await whole().updateOne({ _id: 0 }, { $set: { v: 1 } }, { session })
          expect(await sharded().find({}, { session }).toArray()).toHaveLength(2)
          expect(await sharded().countDocuments()).toBe(0)
        },
        { readConcern: { level: 'snapshot' }, writeConcern: { w: 'majority' } },
      ),
    )
    expect(await countsByShard(context, 'ledger.cut')).toEqual([1, 1])
    expect(await whole().findOne()).toEqual({ _id: 0, k: 0, v: 1 })
  })

  it('leave no changes when they are aborted', async () => {
    await using session = context.client.startSession()
    session.startTransaction()
    await sharded().insertMany(
      [2, 152].map((k) => ({ _id: k, k })),
      { session },
    )
    await sharded().deleteMany({ _id: 1 }, { session })
    await session.abortTransaction()
    expect(await countsByShard(context, 'ledger.cut')).toEqual([1, 1])
  })

  it('return the error of a failing statement', async () => {
    await using session = context.client.startSession()
    session.startTransaction()
    const insert = sharded().insertOne({ _id: 1, k: 1 }, { session })
    await expect(insert).rejects.toMatchObject({ code: 11000 })
    await session.abortTransaction()
  })

  it('move a document to another shard', async () => {
    await sharded().insertOne({ _id: 7, k: 7 })
    await context.client.withSession((session) =>
      session.withTransaction(async () => {
        await sharded().updateOne({ _id: 7, k: 7 }, { $set: { k: 700 } }, { session })
      }),
    )
    const second = context.shardClients[1]?.db('ledger').collection<Numbered>('cut')
    expect(await second?.findOne({ _id: 7 })).toEqual({ _id: 7, k: 700 })
    expect(await sharded().countDocuments({ _id: 7 })).toBe(1)
  })
})
