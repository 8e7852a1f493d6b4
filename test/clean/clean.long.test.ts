import { createHash } from 'node:crypto'
import path from 'node:path'
import { Binary, type Document, type MongoClient } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { type CleanOptions, runClean } from '../../src/clean/run-clean.ts'
import { spawnGuarded } from '../support/guarded-process.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startRedis } from '../support/redis-server.ts'
import { footprint } from '../support/refusals.ts'
import { environment, startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** `tandem clean` after a sync that was given up: what it lists, what it refuses, and what it changes. */

const pair = pairedSets()
const reversible = { reversible: true, enableUserWriteBlocking: 'sourceAndDestination' }

const clusters = () => ({ cluster0: pair.source.uri, cluster1: pair.destination.uri })
const clients = () => [pair.sourceClient, pair.destinationClient] as const
const footprints = () => Promise.all(clients().map(footprint))
const blocked = () => Promise.all(clients().map(writesBlocked))

/** With `answer` there is a terminal. `onError` is called with each text on standard error. */
async function clean(
  options: Partial<CleanOptions> = {},
  answer?: boolean | (() => Promise<boolean>),
  onError: (text: string) => unknown = () => {},
) {
  let [out, err] = ['', '']
  const asked: string[] = []
  const chosen = { redis: null, redisTls: {}, unblock: [], yes: false, dryRun: false, json: false, ...options }
  const code = await runClean(
    { ...clusters(), ...chosen },
    {
      out: (text) => (out += text),
      err: (text) => {
        err += text
        onError(text)
      },
      ...(answer !== undefined && {
        confirm: async (lines) => {
          asked.push(...lines)
          return typeof answer === 'function' ? await answer() : answer
        },
      }),
    },
  )
  return { code, lines: out.split('\n').filter((line) => line !== ''), err, asked }
}

async function fillSource(): Promise<void> {
  const db = pair.sourceClient.db('shop')
  await db.collection('orders').insertMany([{ number: 1, at: new Date() }, { number: 2 }])
  await db.collection('orders').createIndex({ number: 1 }, { unique: true, name: 'byNumber' })
  await db.collection('orders').createIndex({ at: 1 }, { expireAfterSeconds: 3_600, name: 'byTime' })
  await db.collection('orders').createIndex({ other: 1 }, { hidden: true, name: 'byOther' })
  await db.createCollection('log', { capped: true, size: 4_096, max: 100 })
}

/** Runs a sync until it can be committed. */
async function startedSync(options: Parameters<typeof pair.startInstance>[0] = {}, body = {}): Promise<Tandem> {
  const tandem = await pair.startInstance(options)
  await startSync(tandem, body)
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  return tandem
}

/** User writes may be blocked, so the block is lifted for the test's own write and set again. */
async function writeBlocked(client: MongoClient, write: () => Promise<unknown>): Promise<void> {
  const wasBlocked = await writesBlocked(client)
  const setBlock = (global: boolean) => client.db('admin').command({ setUserWriteBlockMode: 1, global })
  await setBlock(false)
  await write()
  await setBlock(wasBlocked)
}

const stored = (client: MongoClient, name: string) => client.db('tandem_internal').collection<{ _id: string }>(name)

async function expectClean(): Promise<void> {
  for (const client of clients()) {
    await client.db('afterwards').collection<{ n: number }>('things').insertOne({ n: 1 })
    const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
    expect(databases.map(({ name }) => name)).not.toContain('tandem_internal')
  }
  expect(await clean()).toMatchObject({
    code: 0,
    lines: ['sync: none is stored on these clusters', 'nothing to clean up'],
  })
}

/**
 * Gives a command until it has an effect. On a busy machine an instance may not get its lease within the 20 seconds that a
 * command waits for it, and refuses the command. It may also refuse one that takes effect, because that is stored later.
 */
async function give(tandem: Tandem, command: string, state: string): Promise<void> {
  const isGiven = async () =>
    (await tandem.progress()).state !== state || (await tandem.post(command)).body.success === true
  await until(isGiven, true)
}

async function committedSync(): Promise<Tandem> {
  const tandem = await startedSync({}, reversible)
  await give(tandem, 'commit', 'RUNNING')
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 180, what: 'COMMITTED' })
  return tandem
}

async function until<T>(read: () => Promise<T>, expected: T): Promise<void> {
  await expect.poll(read, { timeout: 60_000, interval: 50 }).toEqual(expected)
}

/** Reads the number of documents of a collection that has to exist. */
const countOf = (client: MongoClient, name: string) => client.db('shop').collection(name).countDocuments()

describe('after a sync that was killed before its commit', () => {
  it('lists everything and changes nothing, then makes both clusters writable and drops the metadata', async () => {
    await fillSource()
    const tandem = await startedSync({}, reversible)
    await tandem.kill9()
    expect(await blocked()).toEqual([false, true])
    const before = await footprints()

    const listed = [
      'sync: cluster0 -> cluster1, replicating',
      'unblock: user writes on cluster1',
      'drop: database tandem_internal on cluster1',
      'deferred on cluster1, and stays so: shop.log: max 100',
      'deferred on cluster1, and stays so: shop.log: size 4096',
      'deferred on cluster1, and stays so: shop.orders: index byNumber: unique',
      'deferred on cluster1, and stays so: shop.orders: index byOther: hidden',
      'deferred on cluster1, and stays so: shop.orders: index byTime: expireAfterSeconds 3600',
    ]
    // The kernel of this host tells that the process has ended, so nothing has to be waited for.
    expect(await clean()).toEqual({
      code: 1,
      lines: [...listed, 'dry run: nothing was changed; --yes carries it out'],
      err: '',
      asked: [],
    })
    expect(await footprints()).toEqual(before)

    expect(await clean({ yes: true })).toMatchObject({
      code: 0,
      lines: [...listed, 'done: the clusters are cleaned up'],
    })
    expect(await blocked()).toEqual([false, false])
    expect(await countOf(pair.destinationClient, 'orders')).toBe(2)
    await expectClean()
  })

  it('asks on a terminal, and changes nothing without a confirmation or with --dry-run', async () => {
    await fillSource()
    const tandem = await startedSync()
    await tandem.stop()
    const before = await footprints()
    const declined = await clean({}, false)
    expect(declined).toMatchObject({ code: 1, lines: [], err: 'not confirmed; nothing was changed\n' })
    expect(declined.asked).toContain('unblock: user writes on cluster1')
    expect(declined.asked.at(-1)).toMatch(/^The sync can then neither be continued nor committed or reversed/)
    expect(await clean({ dryRun: true }, true)).toMatchObject({ code: 1, asked: [] })
    expect(await clean({ json: true }, true)).toMatchObject({ code: 1, asked: [] })
    expect(await footprints()).toEqual(before)
    expect(await clean({}, true)).toMatchObject({ code: 0 })
    await expectClean()
  })

  it('refuses a plan that no longer fits, also without a question', async () => {
    await fillSource()
    const tandem = await startedSync()
    await tandem.kill9()
    const changeRecord = () =>
      writeBlocked(pair.destinationClient, () =>
        stored(pair.destinationClient, 'sync').updateOne({ _id: 'sync' }, { $inc: { partitions: 1 } }),
      )
    const refused = { code: 4, lines: [], err: expect.stringMatching(/have changed .* Run clean again\.\n$/) }
    const block = () => pair.sourceClient.db('admin').command({ setUserWriteBlockMode: 1, global: true })
    for (const change of [block, changeRecord]) {
      const answer = async () => {
        await change()
        return true
      }
      expect(await clean({}, answer)).toMatchObject(refused)
    }
    expect(await blocked()).toEqual([true, true])

    // The lease of a process of another host has to be observed, before the plan is made and again after that.
    await writeBlocked(pair.destinationClient, () =>
      stored(pair.destinationClient, 'leases').updateMany({}, { $set: { process: null } }),
    )
    let [waits, changing] = [0, Promise.resolve()]
    const onError = (text: string) => {
      if (text.startsWith('waiting') && ++waits === 2) changing = changeRecord()
    }
    expect(await clean({ yes: true }, undefined, onError)).toMatchObject(refused)
    await changing
    expect(await blocked()).toEqual([true, true])
  })

  it('waits for the writes that the servers still run, and the servers refuse those that arrive later', async () => {
    await fillSource()
    const tandem = await startedSync()
    await tandem.kill9()
    const lease = await pair.destinationClient.db('tandem_internal').collection('leases').findOne()
    const { incarnation, epoch, sessions } = lease as Document
    const comment = `tandem:${incarnation}:1`
    let running = 0
    const writes = clients().map(async (client, at) => {
      running += 1
      await client.db('admin').command({ sleep: 1, millis: 2_000 * (at + 1), lock: 'none', comment })
      running -= 1
    })
    expect((await clean({ yes: true })).code).toBe(0)
    expect(running).toBe(0)
    await Promise.all(writes)
    // The server refuses lower numbers in this session, also after the database was dropped.
    const sessionID = createHash('sha256').update(`${sessions.base} ${incarnation} 0`).digest().subarray(0, 16)
    const session = { '_id.id': new Binary(sessionID, Binary.SUBTYPE_UUID) }
    const closed = await pair.destinationClient.db('config').collection('transactions').findOne(session)
    expect(closed?.['txnNum']).toBe((epoch + 1) * 2 ** 32)
    await expectClean()
  })

  it('runs as a command, with the connection strings from the environment and a report as JSON', async () => {
    await fillSource()
    const tandem = await startedSync()
    await tandem.stop()
    const run = async (...args: string[]) => {
      const { child, ended } = spawnGuarded(
        process.execPath,
        [path.resolve(repositoryRoot, 'dist/src/main.js'), 'clean', '--json', ...args],
        {
          cwd: repositoryRoot,
          env: { ...environment(), TANDEM_CLUSTER0: pair.source.uri, TANDEM_CLUSTER1: pair.destination.uri },
          output: 'pipe',
        },
      )
      let text = ''
      child.stdout?.setEncoding('utf8').on('data', (part: string) => {
        text += part
      })
      return { code: await ended, report: JSON.parse(text) }
    }
    const plan = {
      sync: { source: 'cluster0', destination: 'cluster1', state: 'replicating' },
      unblock: [{ cluster: 'cluster1', known: true }],
      startBalancer: null,
      drop: ['cluster1'],
      left: [],
    }
    expect(await run()).toMatchObject({ code: 1, report: { ...plan, clean: false } })
    expect(await run('--yes')).toMatchObject({ code: 0, report: { ...plan, clean: true } })
    await expectClean()
  })
})

describe('while an instance is alive', () => {
  it('refuses and names the instance, also if that is paused, and changes nothing', async () => {
    await fillSource()
    await using tandem = await startedSync({ id: 'shardA' })
    for (const isPaused of [false, true]) {
      if (isPaused) {
        await tandem.post('pause')
        await tandem.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 30, what: 'PAUSED' })
      }
      const before = await footprints()
      for (const yes of [false, true]) {
        expect(await clean({ yes })).toMatchObject({
          code: 4,
          lines: [],
          err: expect.stringMatching(
            /error: instance shardA is alive\. Stop all instances .* Nothing was changed\.\n$/,
          ),
        })
      }
      expect(await footprints()).toEqual(before)
    }
  })
})

describe('if the instances use Redis', () => {
  it('asks for its address, and refuses while an instance sends heartbeats there', async () => {
    await fillSource()
    await using redis = await startRedis()
    const tandem = await startedSync({ id: 'shardA', env: { TANDEM_REDIS: redis.url } })
    expect(await clean({ yes: true })).toMatchObject({
      code: 4,
      err: expect.stringMatching(/give its address with --redis/),
    })
    expect(await clean({ yes: true, redis: redis.url })).toMatchObject({
      code: 4,
      err: expect.stringMatching(/instance shardA is alive/),
    })
    await tandem.kill9()
    expect((await clean({ yes: true, redis: redis.url })).code).toBe(0)
    await expectClean()
  })
})

describe('after a commit that did not end', () => {
  it('makes the source writable too', async () => {
    await fillSource()
    const tandem = await startedSync({ faults: { crashAt: 'verify' } }, reversible)
    await tandem.post('commit').catch(() => {}) // The process may end before it answers.
    await until(async () => tandem.isRunning(), false)
    expect(await blocked()).toEqual([true, true])
    expect(await clean()).toMatchObject({
      code: 1,
      lines: expect.arrayContaining(['unblock: user writes on cluster0', 'unblock: user writes on cluster1']),
    })
    expect((await clean({ yes: true })).code).toBe(0)
    await expectClean()
  })
})

describe('after a commit', () => {
  it('leaves the former source blocked unless --unblock names it', async () => {
    await fillSource()
    const tandem = await committedSync()
    await tandem.stop()
    expect(await clean({ yes: true })).toMatchObject({
      code: 0,
      lines: [
        'sync: cluster0 -> cluster1, committed',
        'drop: database tandem_internal on cluster1',
        expect.stringMatching(
          /^left alone: user writes on cluster0 stay blocked: .*source any more; --unblock cluster0/,
        ),
        'done: the clusters are cleaned up',
      ],
    })
    expect(await blocked()).toEqual([true, false])
    expect(await clean({ yes: true, unblock: ['cluster0'] })).toMatchObject({
      code: 0,
      lines: expect.arrayContaining(['unblock: user writes on cluster0']),
    })
    await expectClean()
  })

  it('cleans up both clusters after a reversal', async () => {
    await fillSource()
    const tandem = await committedSync()
    await give(tandem, 'reverse', 'COMMITTED')
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 180, what: 'canCommit after reverse' })
    await tandem.kill9()
    expect(await clean()).toMatchObject({
      code: 1,
      lines: expect.arrayContaining([
        'sync: cluster1 -> cluster0, replicating',
        'unblock: user writes on cluster0',
        'drop: database tandem_internal on cluster0',
        'drop: database tandem_internal on cluster1',
      ]),
    })
    expect((await clean({ yes: true })).code).toBe(0)
    await expectClean()
  })
})

describe('without a stored sync', () => {
  it('lifts a block only if --unblock names the cluster', async () => {
    await pair.destinationClient.db('admin').command({ setUserWriteBlockMode: 1, global: true })
    expect(await clean({ yes: true })).toMatchObject({
      code: 0,
      lines: [
        'sync: none is stored on these clusters',
        expect.stringMatching(
          /^left alone: user writes on cluster1 stay blocked: no sync .*; --unblock cluster1 allows them/,
        ),
        'nothing to clean up',
      ],
    })
    expect(await blocked()).toEqual([false, true])
    expect((await clean({ yes: true, unblock: ['cluster1'] })).code).toBe(0)
    expect(await blocked()).toEqual([false, false])
  })

  it('refuses the state of a sync between other clusters', async () => {
    await fillSource()
    const tandem = await startedSync()
    await tandem.stop()
    const changed = { $set: { sourceIdentity: 'another' } }
    await writeBlocked(pair.destinationClient, () =>
      stored(pair.destinationClient, 'sync').updateOne({ _id: 'sync' }, changed),
    )
    const before = await footprints()
    expect(await clean({ yes: true })).toMatchObject({
      code: 2,
      lines: [],
      err: expect.stringMatching(/^error: ClusterIdentityChanged: cluster1 holds the state of a sync between other/),
    })
    expect(await footprints()).toEqual(before)
  })

  it('refuses while a cluster keeps the record of a reversed sync with another cluster', async () => {
    await fillSource()
    const tandem = await startedSync()
    await tandem.stop()
    const record = await stored(pair.destinationClient, 'sync').findOne({ _id: 'sync' })
    const move = { ...record, _id: 'sync', destinationIdentity: 'another', generation: 1 }
    await stored(pair.sourceClient, 'moves').insertOne(move)
    const before = await footprints()
    expect(await clean({ yes: true })).toMatchObject({
      code: 2,
      lines: [],
      err: expect.stringMatching(
        /^error: ClusterIdentityChanged: cluster0 holds the record of a reversed sync between/,
      ),
    })
    expect(await footprints()).toEqual(before)
  })

  it('says that a cluster cannot be reached, without its credentials', async () => {
    const cluster1 = 'mongodb://root:hunter2@127.0.0.1:1/?directConnection=true'
    const { code, err } = await clean({ cluster1, yes: true })
    expect([code, err]).toEqual([2, expect.stringMatching(/^error: cluster1 does not answer .*; check that cluster/)])
    expect(err).not.toMatch(/root|hunter2/)
    const invalid = await clean({ cluster1: `${cluster1}&tls=certainly`, yes: true })
    expect(invalid.code).toBe(2)
    expect(invalid.err).not.toMatch(/root|hunter2/)
  })

  it('refuses two connection strings that lead to one cluster', async () => {
    expect(await clean({ cluster1: pair.source.uri })).toMatchObject({
      code: 2,
      err: expect.stringMatching(/same cluster/),
    })
  })
})
