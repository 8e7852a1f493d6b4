import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, writeFileSync } from 'node:fs'
import { connect, createServer, type Socket } from 'node:net'
import os from 'node:os'
import path from 'node:path'
import { createInterface } from 'node:readline'
import { MongoClient } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { failPoint } from './fail-point.ts'
import { claimPorts } from './free-ports.ts'
import { guardPath } from './guarded-process.ts'
import { repositoryRoot, resolveMongod } from './mongo-binaries.ts'
import { startReplicaSet } from './replica-set.ts'
import { startSync, startTandem } from './tandem-process.ts'
import { startProxy } from './tcp-proxy.ts'

const documents = [{ _id: 1 }, { _id: 2 }, { _id: 3 }] as const
type Numbered = { _id: number }

function isAlive(pid: number): boolean {
  try {
    process.kill(pid, 0)
    return true
  } catch {
    return false
  }
}

describe('replica set', () => {
  it('accepts writes, recovers from a stepdown and keeps its data across a restart', async () => {
    await using set = await startReplicaSet()
    await using client = new MongoClient(set.uri)
    const collection = client.db('app').collection<Numbered>('things')
    await collection.insertMany([...documents])

    const before = await client.db('admin').command({ hello: 1 })
    await set.stepDown()
    await collection.insertOne({ _id: 4 })
    const after = await client.db('admin').command({ hello: 1 })
    expect(String(after['electionId'])).not.toBe(String(before['electionId']))

    const pid = await set.primaryPid()
    await set.restart()
    expect(await set.primaryPid()).not.toBe(pid)
    expect(await collection.countDocuments()).toBe(4)
  })

  it('elects another member when the primary of three steps down', async () => {
    await using set = await startReplicaSet({ members: 3 })
    await using client = new MongoClient(set.uri)
    const collection = client.db('app').collection<Numbered>('things', { writeConcern: { w: 3 } })
    await collection.insertMany([...documents])
    const pid = await set.primaryPid()
    await set.stepDown()
    expect(await set.primaryPid()).not.toBe(pid)
    await collection.insertOne({ _id: 4 })
  })

  it('requires credentials with auth, and supports custom roles', async () => {
    await using set = await startReplicaSet({ auth: true })
    await using stranger = new MongoClient(`mongodb://${set.hosts[0]}/?replicaSet=${set.name}`)
    await expect(stranger.db('app').collection('things').insertOne({})).rejects.toMatchObject({ code: 13 })

    const uri = await set.createUser('reader', 'p@ss:word', [
      { role: 'appReader', privileges: [{ resource: { db: 'app', collection: '' }, actions: ['find'] }] },
    ])
    await using administrator = new MongoClient(set.uri)
    await administrator
      .db('app')
      .collection<Numbered>('things')
      .insertMany([...documents])
    await using reader = new MongoClient(uri)
    // The read is sorted, because recovery replays the oplog in parallel and may change the natural order.
    const readAll = () => reader.db('app').collection('things').find().sort({ _id: 1 }).toArray()
    expect(await readAll()).toEqual(documents)
    await expect(reader.db('app').collection('things').insertOne({})).rejects.toMatchObject({ code: 13 })
    await set.restart()
    expect(await readAll()).toEqual(documents)
  })

  it('removes its servers, data and ports when it stops', async () => {
    const set = await startReplicaSet()
    const pid = await set.primaryPid()
    const claim = path.join(os.tmpdir(), 'tandem-ports', String(set.hosts[0]?.split(':')[1]))
    expect([isAlive(pid), existsSync(set.folder), existsSync(claim)]).toEqual([true, true, true])
    await set.stop()
    expect([isAlive(pid), existsSync(set.folder), existsSync(claim)]).toEqual([false, false, false])
  })

  it('reports why a server does not start', async () => {
    await expect(startReplicaSet({ extraArgs: ['--setParameter', 'nonsense=1'] })).rejects.toThrow(/nonsense/)
  })

  it('finds a primary that answers slowly', async () => {
    await using set = await startReplicaSet()
    await using client = await MongoClient.connect(set.uri)
    const data = { failCommands: ['hello', 'isMaster', 'ismaster'], blockConnection: true, blockTimeMS: 1_500 }
    await using _slow = await failPoint(client, 'failCommand', data)
    expect(isAlive(await set.primaryPid())).toBe(true)
  })

  it('reports a member that has ended instead of waiting for it', async () => {
    await using set = await startReplicaSet()
    process.kill(await set.primaryPid(), 'SIGKILL')
    await expect(set.primaryPid()).rejects.toThrow(
      /cannot have a primary\nmember on port \d+ exited with null: no reply to `hello`:\n.+/,
    )
  })

  it('leaves no processes and no data when the process that started it is killed', async () => {
    const program = `
      import { startReplicaSet } from './test/support/replica-set.ts'
      const set = await startReplicaSet({ name: 'orphan', members: 3 })
      console.log(JSON.stringify({ pid: await set.primaryPid(), folder: set.folder }))
      setInterval(() => {}, 1000)`
    const parent = spawn(process.execPath, ['--import', 'tsx', '--input-type=module', '-e', program], {
      cwd: repositoryRoot,
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    const [line] = (await once(createInterface(parent.stdout), 'line')) as [string]
    const { pid, folder } = JSON.parse(line) as { pid: number; folder: string }
    expect([isAlive(pid), existsSync(folder)]).toEqual([true, true])
    parent.kill('SIGKILL')
    await vi.waitFor(() => expect([isAlive(pid), existsSync(folder)]).toEqual([false, false]), { timeout: 10_000 })
  })

  it('starts the oldest version that a source may have', async ({ skip }) => {
    const available = await resolveMongod({ version: '5.0' }).catch((error: Error) => skip(error.message))
    expect(available.version).toMatch(/^5\.0\./)
    await using set = await startReplicaSet({ version: '5.0' })
    await using client = new MongoClient(set.uri)
    expect(await client.db('admin').command({ buildInfo: 1 })).toMatchObject({ version: available.version })
  })
})

describe('proxy', () => {
  it('disconnects a client from a replica set and lets it reconnect', async () => {
    await using set = await startReplicaSet({ proxied: true })
    const [proxy] = set.proxies
    await using client = new MongoClient(set.uri, { serverSelectionTimeoutMS: 500 })
    const collection = client.db('app').collection<Numbered>('things')
    await collection.insertOne({ _id: 1 })
    await proxy?.cut()
    await expect(collection.insertOne({ _id: 2 })).rejects.toMatchObject({ name: 'MongoServerSelectionError' })
    await proxy?.heal()
    await vi.waitFor(() => collection.insertOne({ _id: 3 }), { timeout: 10_000 })
    expect(await collection.find().sort({ _id: 1 }).toArray()).toEqual([{ _id: 1 }, { _id: 3 }])
  })

  it('rejects connections after a cut, and drops all bytes as a black hole', async () => {
    const echo = createServer((socket) => socket.pipe(socket).on('error', () => {}))
    await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve))
    await using proxy = await startProxy('127.0.0.1', (echo.address() as { port: number }).port)

    const first = await open(proxy.port)
    expect(await ask(first, 'one')).toBe('one')

    proxy.blackhole()
    const second = await open(proxy.port)
    expect(await ask(first, 'two')).toBe('silence')
    expect(await ask(second, 'three')).toBe('silence')
    expect([first.destroyed, second.destroyed]).toEqual([false, false])
    const ended = Promise.all([closed(first), closed(second)])
    await proxy.heal()
    await ended
    const third = await open(proxy.port)
    expect(await ask(third, 'four')).toBe('four')

    const cutOff = closed(third)
    await proxy.cut()
    await cutOff
    await expect(open(proxy.port)).rejects.toMatchObject({ code: 'ECONNREFUSED' })
    await proxy.heal()
    const fourth = await open(proxy.port)
    expect(await ask(fourth, 'five')).toBe('five')
    echo.close()
  })

  async function open(port: number): Promise<Socket> {
    const socket = connect(port, '127.0.0.1')
    await once(socket, 'connect')
    return socket.on('error', () => {})
  }

  /** Resolves when the socket is closed, also after an error such as a reset, on which events.once would reject. */
  function closed(socket: Socket): Promise<void> {
    return new Promise((resolve) => socket.once('close', () => resolve()))
  }

  /** Returns the answer, or "silence" if none arrives within 200 ms. */
  async function ask(socket: Socket, question: string): Promise<string> {
    socket.write(question)
    return Promise.race([
      once(socket, 'data').then(([data]) => String(data)),
      new Promise<string>((resolve) => setTimeout(() => resolve('silence'), 200)),
    ])
  }
})

describe('ports', () => {
  it('are never claimed twice', async () => {
    const claims = await Promise.all(Array.from({ length: 10 }, () => claimPorts(5)))
    const ports = claims.flatMap((claim) => claim.ports)
    expect(new Set(ports).size).toBe(50)
    for (const claim of claims) claim.release()
  })
})

describe('tandem process', () => {
  it('sends commands to a program, waits for its progress and stops it', async () => {
    await using tandem = await startTandem({ ...uris, entry: stubProgram('') })
    await startSync(tandem)
    const progress = await tandem.waitFor(({ state }) => state === 'RUNNING', { timeoutSeconds: 5, what: 'running' })
    expect(progress.state).toBe('RUNNING')
    expect(await tandem.post('nonsense')).toMatchObject({ status: 400, body: { success: false } })
    await expect(startSync(tandem, { source: 'nowhere' })).rejects.toThrow(/start answered 400/)
    expect(tandem.output()).toContain('start {"source":"cluster0","destination":"cluster1"}')
    expect(await tandem.stop()).toBe(0)
    expect(isAlive(tandem.pid)).toBe(false)
  })

  it('reports a failure and a timeout with the output of the program', async () => {
    await using tandem = await startTandem({ ...uris, entry: stubProgram('') })
    const never = { timeoutSeconds: 0.1, what: 'committed' }
    await expect(tandem.waitFor(({ state }) => state === 'COMMITTED', never)).rejects.toThrow(
      /waited 0.1 s for: committed/,
    )
    await tandem.post('fail')
    const patient = { timeoutSeconds: 60, what: 'committed' }
    await expect(tandem.waitFor(({ state }) => state === 'COMMITTED', patient)).rejects.toThrow(
      /the sync failed while the test waited for: committed; .*FAILED[\s\S]*fail/,
    )
    expect(await tandem.waitFor(({ state }) => state === 'FAILED', patient)).toMatchObject({ state: 'FAILED' })
  })

  it('reports the end of the program immediately', async () => {
    await using tandem = await startTandem({ ...uris, entry: stubProgram('') })
    const waiting = tandem.waitFor(() => false, { timeoutSeconds: 60, what: 'committed' })
    waiting.catch(() => {})
    await tandem.kill9()
    await expect(waiting).rejects.toThrow(/tandem exited with null/)
  })

  it('reports the output of a program that exits before it listens', async () => {
    const program = stubProgram("console.error('bad option'); process.exit(3)")
    await expect(startTandem({ ...uris, entry: program })).rejects.toThrow(/exited with 3[\s\S]*bad option/)
  })

  const uris = { cluster0: 'mongodb://127.0.0.1:1', cluster1: 'mongodb://127.0.0.1:2' }

  /** Writes a program that implements only the part of tandem's API that `startTandem` calls. Returns its path. */
  function stubProgram(preamble: string): string {
    const folder = mkdtempSync(path.join(os.tmpdir(), 'tandem-stub-'))
    guardPath(folder)
    const file = path.join(folder, 'main.mjs')
    writeFileSync(
      file,
      `${preamble}
      import { createServer } from 'node:http'
      const port = Number(process.argv[process.argv.indexOf('--port') + 1])
      let state = 'IDLE'
      createServer(async (request, response) => {
        let text = ''
        for await (const chunk of request) text += chunk
        const command = request.url.split('/').at(-1)
        if (request.method === 'POST') console.log(command, text)
        const ok = command !== 'nonsense' && !text.includes('nowhere')
        if (ok && command === 'start') state = 'RUNNING'
        if (command === 'fail') state = 'FAILED'
        response.writeHead(ok ? 200 : 400, { 'content-type': 'application/json' })
        response.end(JSON.stringify({ success: ok, ...(command === 'progress' ? { progress: { state } } : {}) }))
      }).listen(port, '127.0.0.1')
      process.on('SIGTERM', () => process.exit(0))`,
    )
    return file
  }
})
