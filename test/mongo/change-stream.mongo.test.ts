import { setTimeout as delay } from 'node:timers/promises'
import { BSON, type Document, MongoClient, type Timestamp } from 'mongodb'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest'
import { FatalError, StoppedError } from '../../src/domain/errors.ts'
import { readChangeStream, type StreamPosition } from '../../src/mongo/change-stream.ts'
import { type Cluster, fromTimestamp } from '../../src/mongo/cluster.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'
import { startProxy } from '../support/tcp-proxy.ts'
import { type TestContext, testCluster, testContext } from './clusters.ts'

const appName = 'stream-under-test'

let set: ReplicaSet
let client: MongoClient
let cluster: Cluster
let database: string
let count = 0

beforeAll(async () => {
  set = await startReplicaSet()
  client = new MongoClient(set.uri)
  cluster = testCluster(set.uri, appName)
})

beforeEach(() => {
  database = `app${count++}`
})

afterEach(async () => {
  await client.db('admin').command({ configureFailPoint: 'failCommand', mode: 'off' })
})

afterAll(async () => {
  await Promise.all([client.close(), cluster.close()])
  await set.stop()
})

interface Seen {
  /** Values of `n` in the order of their events. */
  numbers: number[]
  positions: StreamPosition[]
  context: TestContext
  /** Resolves when `n` has been seen. */
  until: (n: number) => Promise<void>
  end: () => Promise<void>
}

async function now(): Promise<StreamPosition> {
  await appendOplogNote(cluster, 'test')
  return { kind: 'time', time: cluster.latest + 1n }
}

/** Reads the stream in the background, as the event application does. */
function follow(start: StreamPosition, source = cluster): Seen {
  const context = testContext()
  const seen: Omit<Seen, 'until' | 'end'> = { numbers: [], positions: [], context }
  let failure: unknown = null
  const run = (async () => {
    for await (const batch of readChangeStream(source, start, context)) {
      for (const bytes of batch.events) {
        const event = BSON.deserialize(bytes)
        if (event['ns'].db === database && event['operationType'] === 'insert')
          seen.numbers.push(event['fullDocument'].n)
      }
      seen.positions.push(batch.position)
    }
  })().catch((error) => {
    failure = error
  })
  return {
    ...seen,
    until: async (n) => {
      const deadline = Date.now() + 30_000
      while (!seen.numbers.includes(n)) {
        if (failure) throw failure
        if (Date.now() > deadline) throw new Error(`${n} was not seen; the last was ${seen.numbers.at(-1)}`)
        await delay(5)
      }
    },
    end: async () => {
      context.stop()
      await run
      expect(failure).toBeInstanceOf(StoppedError)
    },
  }
}

/** Inserts n = from, from + 1, … one after the other until stopped; returns how far it came. */
function writeOn(from: number): { stop: () => Promise<number> } {
  let stopped = false
  let n = from
  const run = (async () => {
    const collection = client.db(database).collection<Document>('numbers')
    while (!stopped) {
      await collection.insertOne({ _id: n as never, n })
      n += 1
    }
  })()
  return {
    stop: async () => {
      stopped = true
      await run
      return n
    },
  }
}

const upTo = (n: number) => Array.from({ length: n }, (_, at) => at)

const failCommand = (mode: 'alwaysOn' | { times: number } | { skip: number }, data: Document) =>
  client.db('admin').command({ configureFailPoint: 'failCommand', mode, data: { appName, ...data } })

async function cursorsOfStream(): Promise<Document[]> {
  return await client
    .db('admin')
    .aggregate([
      { $currentOp: { allUsers: true, idleCursors: true } },
      { $match: { appName, 'cursor.cursorId': { $exists: true } } },
    ])
    .toArray()
}

describe('the stream goes on where it was, nothing lost, repeated or out of order', () => {
  async function whileWriting(
    disturb: (seen: Seen, round: number) => Promise<void>,
    rounds: number,
    source = cluster,
  ): Promise<Seen> {
    const seen = follow(await now(), source)
    const writer = writeOn(0)
    for (let round = 0; round < rounds; round++) {
      await seen.until(round * 10)
      await disturb(seen, round)
    }
    const written = await writer.stop()
    await seen.until(written - 1)
    await seen.end()
    expect(seen.numbers).toEqual(upTo(written))
    return seen
  }

  /** A busy stream slips through most attempts to kill it. */
  async function untilHit(seen: Seen, kill: () => Promise<void>): Promise<void> {
    const before = seen.context.retried.length
    const deadline = Date.now() + 10_000
    while (seen.context.retried.length === before) {
      expect(Date.now(), 'the stream noticed nothing').toBeLessThan(deadline)
      await kill()
      await delay(5)
    }
  }

  it('after its cursor was killed', async () => {
    await whileWriting(async (seen) => {
      await untilHit(seen, async () => {
        for (const { cursor, ns } of await cursorsOfStream()) {
          const [db, ...collection] = (ns as string).split('.') as [string, ...string[]]
          await client.db(db).command({ killCursors: collection.join('.'), cursors: [cursor.cursorId] })
        }
      })
    }, 4)
  })

  it('after its operation was killed', async () => {
    await whileWriting(async (seen) => {
      await untilHit(seen, async () => {
        for (const { opid } of await cursorsOfStream()) {
          if (opid !== undefined) await client.db('admin').command({ killOp: 1, op: opid })
        }
      })
    }, 2)
  })

  it('after its connection was cut, while reading and while reopening', async () => {
    const seen = await whileWriting(async (_, round) => {
      const failCommands = round % 2 === 0 ? ['getMore'] : ['getMore', 'aggregate']
      await failCommand({ times: 2 }, { failCommands, closeConnection: true })
    }, 6)
    expect(seen.context.retried.length).toBeGreaterThan(3)
  })

  it('after answers were lost on their way', async () => {
    const [host, port] = (set.hosts[0] as string).split(':') as [string, string]
    await using proxy = await startProxy(host, Number(port))
    const behind = testCluster(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
    try {
      const seen = await whileWriting(
        async () => {
          await proxy.cut()
          await proxy.heal()
        },
        8,
        behind,
      )
      expect(seen.context.retried.length).toBeGreaterThan(0)
    } finally {
      await behind.close()
    }
  })

  it.each([
    [43, 'CursorNotFound'],
    [189, 'PrimarySteppedDown'],
    [10107, 'NotWritablePrimary'],
    [11601, 'Interrupted'],
    [50, 'MaxTimeMSExpired'],
  ])('after error %i, %s', async (errorCode) => {
    const seen = await whileWriting(async () => {
      await failCommand({ times: 2 }, { failCommands: ['getMore', 'aggregate'], errorCode })
    }, 2)
    expect(seen.context.retried.length).toBeGreaterThan(0)
  })

  it('after the primary stepped down', async () => {
    await whileWriting(async () => {
      await set.stepDown()
    }, 2)
  })

  it('in another process, from any position it gave', async () => {
    const seen = follow(await now())
    const writer = writeOn(0)
    await seen.until(30)
    const written = await writer.stop()
    await seen.until(written - 1)
    await seen.end()
    const numbersAfter: number[][] = []
    for (const position of [seen.positions[0], seen.positions[3], seen.positions.at(-1)]) {
      const again = follow(position as StreamPosition)
      await client
        .db(database)
        .collection('numbers')
        .insertOne({ n: 1_000 + numbersAfter.length })
      await again.until(1_000 + numbersAfter.length)
      await again.end()
      numbersAfter.push(again.numbers.filter((n) => n < 1_000))
    }
    const [first, fourth, last] = numbersAfter as [number[], number[], number[]]
    for (const rest of [first, fourth]) expect(rest).toEqual(upTo(written).slice(written - rest.length))
    expect(first.length).toBeGreaterThan(fourth.length)
    expect(last).toEqual([])
  })
})

describe('the start', () => {
  it('is inclusive: what happened at that very time is seen', async () => {
    await client.db(database).collection('numbers').insertOne({ n: -1 })
    const reply = await client.db(database).command({ insert: 'numbers', documents: [{ n: 0 }] })
    await client.db(database).collection('numbers').insertOne({ n: 1 })
    const seen = follow({ kind: 'time', time: fromTimestamp(reply['operationTime']) })
    await seen.until(1)
    await seen.end()
    expect(seen.numbers).toEqual([0, 1])
  })

  it('after a token leaves out nothing of the transaction or command the token’s event was part of', async () => {
    const seen = follow(await now())
    const session = client.startSession()
    await client.db(database).createCollection('numbers')
    await session.withTransaction(async () => {
      for (const n of upTo(40)) await client.db(database).collection('numbers').insertOne({ n }, { session })
    })
    await session.endSession()
    await seen.until(39)
    await seen.end()
    expect(seen.numbers).toEqual(upTo(40))
  })
})

describe('a position', () => {
  it('moves on while nothing happens, and while only databases that are left out change', async () => {
    const seen = follow(await now())
    await delay(100)
    const before = seen.positions.at(-1)?.time ?? 0n
    for (let beat = 0; beat < 3; beat++) {
      await client.db('tandem_internal').collection('beats').insertOne({})
      await appendOplogNote(cluster, 'beat')
      const target = cluster.latest
      const deadline = Date.now() + 5_000
      while ((seen.positions.at(-1)?.time ?? 0n) < target) {
        expect(Date.now(), 'the position stands still').toBeLessThan(deadline)
        await delay(20)
      }
    }
    await seen.end()
    const times = seen.positions.map(({ time }) => time)
    expect(times.at(-1)).toBeGreaterThan(before)
    expect(times).toEqual([...times].sort((one, other) => (one < other ? -1 : 1)))
    expect(seen.numbers).toEqual([])
  })
})

describe('a lost history', () => {
  it.each([
    ['getMore', 286],
    ['aggregate', 286],
    ['aggregate', 280],
    ['getMore', 136],
  ])('met by %s as error %i is said by name, at once', async (failing, errorCode) => {
    const start = await now()
    await failCommand('alwaysOn', { failCommands: [failing], errorCode })
    const context = testContext()
    const reading = (async () => {
      for await (const _ of readChangeStream(cluster, start, context));
    })()
    const error = await reading.catch((error) => error)
    expect(error).toBeInstanceOf(FatalError)
    expect(error).toMatchObject({ failure: 'OplogWindowLost', cause: { code: errorCode } })
    expect(context.retried).toEqual([])
  })

  it('is what a real oplog that has rolled over amounts to', async () => {
    await using small = await startReplicaSet({ oplogSizeMB: 1, extraArgs: ['--syncdelay', '1'] })
    await using writer = new MongoClient(small.uri)
    const source = testCluster(small.uri)
    try {
      await appendOplogNote(source, 'test')
      const positions: StreamPosition[] = [{ kind: 'time', time: source.latest }]
      for await (const { position } of readChangeStream(source, positions[0] as StreamPosition, testContext())) {
        positions.push(position)
        break
      }
      await rollOver(writer, source.latest)
      for (const position of positions) {
        const context = testContext()
        const reading = (async () => {
          for await (const _ of readChangeStream(source, position, context));
        })()
        await expect(reading, position.kind).rejects.toMatchObject({ failure: 'OplogWindowLost' })
        expect(context.retried).toEqual([])
      }
    } finally {
      await source.close()
    }
  })
})

/** Writes until the oplog begins after `time`. */
async function rollOver(writer: MongoClient, time: bigint): Promise<void> {
  const oplog = writer.db('local').collection('oplog.rs')
  for (let first = 0n; first <= time; ) {
    const documents = Array.from({ length: 10 }, () => ({ text: 'x'.repeat(100_000) }))
    await writer.db('app').collection('filler').insertMany(documents)
    const [oldest] = await oplog.find().sort({ $natural: 1 }).limit(1).toArray()
    first = fromTimestamp(oldest?.['ts'] as Timestamp)
  }
}

describe('when told to stop', () => {
  it('the stream ends between two batches and closes its cursor', async () => {
    // Streams of other tests whose connections were broken may still be idle on the server.
    const before = await openStreams()
    const seen = follow(await now())
    await client.db(database).collection('numbers').insertOne({ n: 0 })
    await seen.until(0)
    await seen.end()
    const left = (await openStreams()).filter((id) => !before.includes(id))
    expect(left).toEqual([])
  })

  async function openStreams(): Promise<string[]> {
    const operations = await client
      .db('admin')
      .aggregate([{ $currentOp: { allUsers: true, idleCursors: true } }, { $match: { ns: 'admin.$cmd.aggregate' } }])
      .toArray()
    const streams = operations.filter(({ cursor }) => cursor?.originatingCommand?.pipeline?.[0]?.$changeStream)
    return streams.map(({ cursor }) => String(cursor.cursorId))
  }
})
