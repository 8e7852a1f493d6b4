import { createHash } from 'node:crypto'
import path from 'node:path'
import { Binary, type Document } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import { spawnGuarded } from '../support/guarded-process.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { environment } from '../support/program-run.ts'
import { CleanedPair } from './cleaned-pair.ts'

/** Tests what `tandem clean` lists, asks, waits for and changes after a sync that was given up. */

const pair = new CleanedPair()

describe('after a sync that was killed before its commit', () => {
  it('lists everything and changes nothing, then makes both clusters writable and drops the metadata', async () => {
    const tandem = await pair.startedSync({}, pair.reversible)
    await tandem.kill9()
    expect(await pair.blocked()).toEqual([false, true])
    const before = await pair.footprints()

    const listed = [
      'sync: cluster0 -> cluster1, replicating',
      'unblock: user writes on cluster1',
      `drop: database ${metadataDatabase} on cluster1`,
      // This line is about the reservation of the older name, which exists because the sync is not older than ten minutes.
      `drop: database ${olderMetadataDatabase} on cluster1`,
      'deferred on cluster1, and stays so: shop.log: max 100',
      'deferred on cluster1, and stays so: shop.log: size 4096',
      'deferred on cluster1, and stays so: shop.orders: index byNumber: unique',
      'deferred on cluster1, and stays so: shop.orders: index byOther: hidden',
      'deferred on cluster1, and stays so: shop.orders: index byTime: expireAfterSeconds 3600',
    ]
    // clean learns from the kernel of this host that the process has ended, so it does not have to wait.
    expect(await pair.clean()).toEqual({
      code: 1,
      lines: [...listed, 'dry run: nothing was changed; --yes carries the plan out'],
      err: '',
      asked: [],
    })
    expect(await pair.footprints()).toEqual(before)

    expect(await pair.clean({ yes: true })).toMatchObject({
      code: 0,
      lines: [...listed, 'done: the clusters are cleaned up'],
    })
    expect(await pair.blocked()).toEqual([false, false])
    expect(await pair.sets.destinationClient.db('shop').collection('orders').countDocuments()).toBe(2)
    await pair.expectClean()
  })

  it('asks on a terminal, and changes nothing without a confirmation or with --dry-run', async () => {
    const tandem = await pair.startedSync()
    await tandem.stop()
    const before = await pair.footprints()
    const declined = await pair.clean({}, false)
    expect(declined).toMatchObject({ code: 1, lines: [], err: 'not confirmed; nothing was changed\n' })
    expect(declined.asked).toContain('unblock: user writes on cluster1')
    expect(declined.asked.at(-1)).toMatch(/^The sync can then no longer be continued, committed or reversed/)
    expect(await pair.clean({ dryRun: true }, true)).toMatchObject({ code: 1, asked: [] })
    expect(await pair.clean({ json: true }, true)).toMatchObject({ code: 1, asked: [] })
    expect(await pair.footprints()).toEqual(before)
    expect(await pair.clean({}, true)).toMatchObject({ code: 0 })
    await pair.expectClean()
  })

  it('refuses to execute a plan that has become outdated, also if it does not ask', async () => {
    const tandem = await pair.startedSync()
    await tandem.kill9()
    const changeRecord = () =>
      pair.writeBlocked(() => pair.stored('sync').updateOne({ _id: 'sync' }, { $inc: { partitions: 1 } }))
    const refused = { code: 4, lines: [], err: expect.stringMatching(/have changed .* Run clean again\.\n$/) }
    const block = () => pair.sets.sourceClient.db('admin').command({ setUserWriteBlockMode: 1, global: true })
    for (const change of [block, changeRecord]) {
      const answer = async () => {
        await change()
        return true
      }
      expect(await pair.clean({}, answer)).toMatchObject(refused)
    }
    expect(await pair.blocked()).toEqual([true, true])

    // clean has to observe the lease of a process on another host, once before it makes the plan and once after that.
    await pair.writeBlocked(() => pair.stored('leases').updateMany({}, { $set: { process: null } }))
    let [waits, changing] = [0, Promise.resolve()]
    const onError = (text: string) => {
      if (text.startsWith('waiting') && ++waits === 2) changing = changeRecord()
    }
    expect(await pair.clean({ yes: true }, undefined, onError)).toMatchObject(refused)
    await changing
    expect(await pair.blocked()).toEqual([true, true])
  })

  it('waits for the writes that the servers still run, and the servers refuse those that arrive later', async () => {
    const tandem = await pair.startedSync()
    await tandem.kill9()
    const lease = await pair.sets.destinationClient.db(metadataDatabase).collection('leases').findOne()
    const { incarnation, epoch, sessions } = lease as Document
    const comment = `tandem:${incarnation}:1`
    let running = 0
    const writes = pair.clients.map(async (client, at) => {
      running += 1
      await client.db('admin').command({ sleep: 1, millis: 2_000 * (at + 1), lock: 'none', comment })
      running -= 1
    })
    expect((await pair.clean({ yes: true })).code).toBe(0)
    expect(running).toBe(0)
    await Promise.all(writes)
    // The server refuses lower numbers in this session, also after the database was dropped.
    const sessionID = createHash('sha256').update(`${sessions.base} ${incarnation} 0`).digest().subarray(0, 16)
    const session = { '_id.id': new Binary(sessionID, Binary.SUBTYPE_UUID) }
    const closed = await pair.sets.destinationClient.db('config').collection('transactions').findOne(session)
    expect(closed?.['txnNum']).toBe((epoch + 1) * 2 ** 32)
    await pair.expectClean()
  })

  it('runs as a command, with the connection strings from the environment and a report as JSON', async () => {
    const tandem = await pair.startedSync()
    await tandem.stop()
    const run = async (...args: string[]) => {
      const { child, ended } = spawnGuarded(
        process.execPath,
        [path.resolve(repositoryRoot, 'dist/main.js'), 'clean', '--json', ...args],
        {
          cwd: repositoryRoot,
          env: { ...environment(), TANDEM_CLUSTER0: pair.sets.source.uri, TANDEM_CLUSTER1: pair.sets.destination.uri },
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
      drop: [
        { cluster: 'cluster1', database: metadataDatabase },
        { cluster: 'cluster1', database: olderMetadataDatabase },
      ],
      left: [],
    }
    expect(await run()).toMatchObject({ code: 1, report: { ...plan, clean: false } })
    expect(await run('--yes')).toMatchObject({ code: 0, report: { ...plan, clean: true } })
    await pair.expectClean()
  })
})
