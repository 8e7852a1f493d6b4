import { execFileSync, spawn } from 'node:child_process'
import { once } from 'node:events'
import { createInterface } from 'node:readline'
import { MongoClient } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { repositoryRoot } from './mongo-binaries.ts'
import { startShardedCluster } from './sharded-cluster.ts'

type Numbered = { _id: number; k: number }

/** Returns the servers and mongos stand-ins whose arguments contain this text. */
function processesOf(text: string): { pid: number; line: string }[] {
  return execFileSync('ps', ['-ww', '-A', '-o', 'pid=,args='], { encoding: 'utf8' })
    .split('\n')
    .map((line) => ({ pid: Number.parseInt(line, 10), line }))
    .filter(({ line }) => line.includes(text) && /mongo[ds]/.test(line))
}

describe('sharded cluster', () => {
  it('continues after a stepdown and a restart of a shard, and after restarts of the config server and the mongos', async () => {
    await using cluster = await startShardedCluster({ shards: 3 })
    expect(cluster.shards).toHaveLength(3)
    await using client = new MongoClient(cluster.uri)
    const admin = client.db('admin')
    await admin.command({ enableSharding: 'app', primaryShard: cluster.shards[0]?.name })
    await admin.command({ shardCollection: 'app.things', key: { k: 1 } })
    for (const index of [1, 2]) {
      await cluster.split('app.things', { k: index * 100 })
      await cluster.moveChunk('app.things', { k: index * 100 }, index)
    }
    const things = client.db('app').collection<Numbered>('things')
    let next = 0
    const insertEverywhere = async () => {
      for (const k of [0, 100, 200]) {
        await vi.waitFor(() => things.insertOne({ _id: next, k }), { timeout: 20_000 })
        next++
      }
    }
    await insertEverywhere()
    await cluster.shards[1]?.stepDown()
    await insertEverywhere()
    await cluster.shards[2]?.restart()
    await insertEverywhere()
    await cluster.config.restart()
    await insertEverywhere()
    await cluster.mongoses[0]?.restart()
    await insertEverywhere()
    const ids = (await things.find().sort({ _id: 1 }).toArray()).map(({ _id }) => _id)
    expect(ids).toEqual(Array.from({ length: 15 }, (_, index) => index))
  })

  it('has several mongoses that return the same data', async () => {
    await using cluster = await startShardedCluster({ mongoses: 2 })
    const [one, other] = cluster.mongoses
    await using first = new MongoClient(one?.uri ?? '')
    await using second = new MongoClient(other?.uri ?? '')
    await first.db('admin').command({ enableSharding: 'app', primaryShard: cluster.shards[0]?.name })
    await first.db('admin').command({ shardCollection: 'app.things', key: { k: 1 } })
    const [ofFirst, ofSecond] = [first, second].map((client) => client.db('app').collection<Numbered>('things'))
    await ofSecond?.insertMany([1, 150].map((k) => ({ _id: k, k })))
    await cluster.split('app.things', { k: 100 })
    await first.db('admin').command({ moveChunk: 'app.things', find: { k: 150 }, to: cluster.shards[1]?.name })
    // The second mongos does not know yet that a chunk has moved.
    await ofSecond?.insertMany([2, 151].map((k) => ({ _id: k, k })))
    await ofSecond?.updateMany({}, { $inc: { k: 0 } })
    for (const collection of [ofFirst, ofSecond]) {
      expect((await collection?.find().sort({ k: 1 }).toArray())?.map(({ k }) => k)).toEqual([1, 2, 150, 151])
    }
    await first.db('app').dropDatabase()
    await ofSecond?.insertOne({ _id: 3, k: 3 })
    expect(await ofFirst?.countDocuments()).toBe(1)
  })

  it('is unreachable while its proxy is cut', async () => {
    await using cluster = await startShardedCluster({ shards: 1, proxied: true })
    await using client = new MongoClient(cluster.uri, { serverSelectionTimeoutMS: 500 })
    const things = client.db('app').collection<Numbered>('things')
    await things.insertOne({ _id: 1, k: 1 })
    const [proxy] = cluster.proxies
    await proxy?.cut()
    await expect(things.insertOne({ _id: 2, k: 2 })).rejects.toMatchObject({ name: 'MongoServerSelectionError' })
    await proxy?.heal()
    await vi.waitFor(() => things.insertOne({ _id: 3, k: 3 }), { timeout: 10_000 })
  })

  it('stops the hidden router of a stand-in that is killed', async ({ skip }) => {
    await using cluster = await startShardedCluster({ name: 'headless', shards: 1 })
    const [program] = processesOf(`${cluster.config.name}/`).filter(({ line }) => line.includes('mongos-main'))
    if (!program) return skip('a real mongos is installed')
    const routers = () => processesOf('headless-mongos0-router')
    expect(routers()).toHaveLength(1)
    process.kill(program.pid, 'SIGKILL')
    await vi.waitFor(() => expect(routers()).toEqual([]), { timeout: 10_000 })
  })

  it('leaves no processes when it stops', async () => {
    const cluster = await startShardedCluster({ name: 'passing' })
    expect(processesOf('passing-').length).toBeGreaterThanOrEqual(4)
    await cluster.stop()
    expect(processesOf('passing-')).toEqual([])
  })

  it('leaves no processes when the process that started it is killed', async () => {
    const program = `
      import { startShardedCluster } from './test/support/sharded-cluster.ts'
      await startShardedCluster({ name: 'orphaned' })
      console.log('started')
      setInterval(() => {}, 1000)`
    const parent = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
      cwd: repositoryRoot,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(createInterface(parent.stdout), 'line')
    expect(processesOf('orphaned-').length).toBeGreaterThanOrEqual(4)
    parent.kill('SIGKILL')
    await vi.waitFor(() => expect(processesOf('orphaned-')).toEqual([]), { timeout: 10_000 })
  })
})
