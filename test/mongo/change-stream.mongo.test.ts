import { setTimeout as delay } from 'node:timers/promises'
import { BSON, type Document, MongoClient, type Timestamp } from 'mongodb'
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it, vi } from 'vitest'
import { FatalError, StoppedError } from '../../src/domain/errors.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
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

interface Reader {
  /** The values of `n`, in the order of their events. */
  numbers: number[]
  positions: StreamPosition[]
  context: TestContext
  /** Resolves when the event of `n` has been read. */
  until: (n: number) => Promise<void>
  end: () => Promise<void>
}

async function now(): Promise<StreamPosition> {
  await appendOplogNote(cluster, 'test')
  return { kind: 'time', time: cluster.latest + 1n }
}

/** Reads the stream in the background, as event application does. */
function follow(start: StreamPosition, source = cluster): Reader {
  const context = testContext()
  const reader: Omit<Reader, 'until' | 'end'> = { numbers: [], positions: [], context }
  let failure: unknown = null
  const run = (async () => {
    for await (const batch of readChangeStream(source, start, context)) {
      for (const bytes of batch.events) {
        const event = BSON.deserialize(bytes)
        if (event['ns'].db === database && event['operationType'] === 'insert')
          reader.numbers.push(event['fullDocument'].n)
      }
      reader.positions.push(batch.position)
    }
  })().catch((error) => {
    failure = error
  })
  return {
    ...reader,
    until: async (n) => {
      const deadline = Date.now() + 30_000
      while (!reader.numbers.includes(n)) {
        if (failure) throw failure
        if (Date.now() > deadline) throw new Error(`${n} was not read; the last was ${reader.numbers.at(-1)}`)
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

/** Inserts n = from, from + 1, … one after the other until `stop` is called. `stop` returns the next number. */
function keepWriting(from: number): { stop: () => Promise<number> } {
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

describe('the stream continues without lost, repeated or reordered events', () => {
  async function whileWriting(
    disturb: (reader: Reader, round: number) => Promise<void>,
    rounds: number,
    source = cluster,
  ): Promise<Reader> {
    const reader = follow(await now(), source)
    const writer = keepWriting(0)
    for (let round = 0; round < rounds; round++) {
      await reader.until(round * 10)
      await disturb(reader, round)
    }
    const written = await writer.stop()
    await reader.until(written - 1)
    await reader.end()
    expect(reader.numbers).toEqual(upTo(written))
    return reader
  }

  /** Repeats `kill` until the stream fails once, because most attempts hit the stream between two commands. */
  async function untilRetried(reader: Reader, kill: () => Promise<void>): Promise<void> {
    const before = reader.context.retried.length
    const deadline = Date.now() + 10_000
    while (reader.context.retried.length === before) {
      expect(Date.now(), 'the stream did not fail').toBeLessThan(deadline)
      await kill()
      await delay(5)
    }
  }

  it('after its cursor was killed', async () => {
    await whileWriting(async (reader) => {
      await untilRetried(reader, async () => {
        for (const { cursor, ns } of await cursorsOfStream()) {
          const [db, ...collection] = (ns as string).split('.') as [string, ...string[]]
          await client.db(db).command({ killCursors: collection.join('.'), cursors: [cursor.cursorId] })
        }
      })
    }, 4)
  })

  it('after its operation was killed', async () => {
    await whileWriting(async (reader) => {
      await untilRetried(reader, async () => {
        for (const { opid } of await cursorsOfStream()) {
          if (opid !== undefined) await client.db('admin').command({ killOp: 1, op: opid })
        }
      })
    }, 2)
  })

  it('after its connection was closed, while reading and while reopening', async () => {
    const reader = await whileWriting(async (_, round) => {
      const failCommands = round % 2 === 0 ? ['getMore'] : ['getMore', 'aggregate']
      await failCommand({ times: 2 }, { failCommands, closeConnection: true })
    }, 6)
    expect(reader.context.retried.length).toBeGreaterThan(3)
  })

  it('after replies were lost on the network', async () => {
    const [host, port] = (set.hosts[0] as string).split(':') as [string, string]
    await using proxy = await startProxy(host, Number(port))
    const behind = testCluster(`mongodb://127.0.0.1:${proxy.port}/?directConnection=true`)
    try {
      const reader = await whileWriting(
        async () => {
          await proxy.cut()
          await proxy.heal()
        },
        8,
        behind,
      )
      expect(reader.context.retried.length).toBeGreaterThan(0)
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
    const reader = await whileWriting(async () => {
      await failCommand({ times: 2 }, { failCommands: ['getMore', 'aggregate'], errorCode })
    }, 2)
    expect(reader.context.retried.length).toBeGreaterThan(0)
  })

  it('after the primary stepped down', async () => {
    await whileWriting(async () => {
      await set.stepDown()
    }, 2)
  })

  it('in a new reader, from any position that it reported', async () => {
    const reader = follow(await now())
    const writer = keepWriting(0)
    await reader.until(30)
    const written = await writer.stop()
    await reader.until(written - 1)
    await reader.end()
    const numbersAfter: number[][] = []
    for (const position of [reader.positions[0], reader.positions[3], reader.positions.at(-1)]) {
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

describe('the start of a stream', () => {
  it('is inclusive: the stream delivers the events of exactly that time', async () => {
    await client.db(database).collection('numbers').insertOne({ n: -1 })
    const reply = await client.db(database).command({ insert: 'numbers', documents: [{ n: 0 }] })
    await client.db(database).collection('numbers').insertOne({ n: 1 })
    const reader = follow({ kind: 'time', time: fromTimestamp(reply['operationTime']) })
    await reader.until(1)
    await reader.end()
    expect(reader.numbers).toEqual([0, 1])
  })

  it('delivers every event of a transaction that begins after it', async () => {
    const reader = follow(await now())
    const session = client.startSession()
    await client.db(database).createCollection('numbers')
    await session.withTransaction(async () => {
      for (const n of upTo(40)) await client.db(database).collection('numbers').insertOne({ n }, { session })
    })
    await session.endSession()
    await reader.until(39)
    await reader.end()
    expect(reader.numbers).toEqual(upTo(40))
  })
})

describe('a position', () => {
  it('advances while the cluster is idle, and while only excluded databases change', async () => {
    const reader = follow(await now())
    await delay(100)
    const before = reader.positions.at(-1)?.time ?? 0n
    for (let round = 0; round < 3; round++) {
      await client.db(metadataDatabase).collection('filler').insertOne({})
      await appendOplogNote(cluster, 'heartbeat')
      const target = cluster.latest
      const deadline = Date.now() + 5_000
      while ((reader.positions.at(-1)?.time ?? 0n) < target) {
        expect(Date.now(), 'the position does not advance').toBeLessThan(deadline)
        await delay(20)
      }
    }
    await reader.end()
    const times = reader.positions.map(({ time }) => time)
    expect(times.at(-1)).toBeGreaterThan(before)
    expect(times).toEqual([...times].sort((one, other) => (one < other ? -1 : 1)))
    expect(reader.numbers).toEqual([])
  })
})

describe('an oplog that no longer reaches back', () => {
  it.each([
    ['getMore', 286, 'ChangeStreamHistoryLost'],
    ['aggregate', 286, 'ChangeStreamHistoryLost'],
    ['aggregate', 280, 'ChangeStreamFatalError'],
    ['getMore', 136, 'CappedPositionLost'],
  ])(
    'fails the stream with OplogWindowLost, without a retry, when %s returns error %i',
    async (failing, errorCode, codeName) => {
      const start = await now()
      await failCommand('alwaysOn', { failCommands: [failing], errorCode })
      const context = testContext()
      const reading = (async () => {
        for await (const _ of readChangeStream(cluster, start, context));
      })()
      const error = await reading.catch((error) => error)
      expect(error).toBeInstanceOf(FatalError)
      expect(error).toMatchObject({ failure: 'OplogWindowLost', cause: { code: errorCode } })
      expect(error.message).toMatch(
        `reading the change stream: the oplog of cluster0 no longer reaches back to the stored position (${failing} on cluster0, admin`,
      )
      expect(error.message).toMatch(`: ${codeName} (${errorCode}): Failing command via 'failCommand' failpoint), so`)
      expect(context.retried).toEqual([])
    },
  )

  it('fails the stream when a real oplog has rolled over', async () => {
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

describe('a stream that is stopped', () => {
  it('ends between two batches and closes its cursor', async () => {
    // Cursors of other tests, whose connections were broken, may still be idle on the server.
    const before = await openStreams()
    const reader = follow(await now())
    await client.db(database).collection('numbers').insertOne({ n: 0 })
    await reader.until(0)
    await reader.end()
    // The stream ends without waiting until the server has closed its cursor.
    await vi.waitFor(async () => {
      expect((await openStreams()).filter((id) => !before.includes(id))).toEqual([])
    }, 10_000)
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
