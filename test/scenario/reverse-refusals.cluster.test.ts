import type { Document, MongoClient } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import type { VerificationSide } from '../../src/domain/progress.ts'
import {
  accepted,
  canCommit,
  commit,
  connected,
  patience,
  ReversiblePair,
  reverse,
  reversible,
  setBlocking,
  things,
} from '../support/reversible-pair.ts'
import type { CommandAnswer, Tandem } from '../support/tandem-process.ts'

/** What keeps a committed sync from being reversed: each refusal has a name and changes nothing. */

/** The oplog is cut down to a megabyte at every checkpoint, each second; nothing is written to it unasked. */
const pair = new ReversiblePair({
  oplogSizeMB: 1,
  extraArgs: ['--syncdelay', '1', '--setParameter', 'writePeriodicNoops=false'],
})

describe('reverse is refused', () => {
  /** Without the verifier's lags: it may still be ending, and the second may change meanwhile. */
  async function shown(tandem: Tandem): Promise<unknown> {
    const { verification, ...progress } = await tandem.progress()
    const still = ({ lagTimeSeconds: _, ...side }: VerificationSide): unknown => side
    return { ...progress, verification: verification && [still(verification.source), still(verification.destination)] }
  }

  async function expectRefused(tandem: Tandem, status: number, error: string, description: RegExp): Promise<void> {
    const before = [await shown(tandem), await stored()]
    const answer: CommandAnswer = await tandem.post('reverse')
    expect(answer).toEqual({
      status,
      body: { success: false, error, errorDescription: expect.stringMatching(description) },
    })
    expect([await shown(tandem), await stored()]).toEqual(before)
    expect((await tandem.progress()).state).toBe('COMMITTED')
  }

  /** All that a restart would go on from. */
  async function stored(): Promise<Document[]> {
    const found: Document[] = []
    for (const client of [pair.leftClient, pair.rightClient]) {
      for (const name of ['sync', 'instances', 'positions', 'collections']) {
        found.push(...(await client.db('tandem_internal').collection(name).find().toArray()))
      }
    }
    return found
  }

  async function commitWith(start: Record<string, unknown>): Promise<Tandem> {
    await things(pair.leftClient).insertOne({ _id: 1 })
    return await pair.commitSync(start)
  }

  it('2.1: unless the sync was started with reversible true', async () => {
    await using tandem = await commitWith({ enableUserWriteBlocking: 'sourceAndDestination' })
    await expectRefused(tandem, 409, 'WrongState', /"reversible": true/)
  })

  it.each(['destinationOnly', 'none'])(
    '2.1: unless writes were blocked on both sides, of which progress warns: %s',
    async (enableUserWriteBlocking) => {
      await using tandem = await commitWith({ reversible: true, enableUserWriteBlocking })
      expect((await tandem.progress()).warnings).toEqual([expect.stringMatching(/sourceAndDestination/)])
      await expectRefused(tandem, 409, 'WrongState', new RegExp(`${enableUserWriteBlocking}.*sourceAndDestination`))
    },
  )

  it('while the former source takes user writes, and is accepted when it is blocked again', async () => {
    await using tandem = await commitWith(reversible)
    await setBlocking(pair.leftClient, false)
    await expectRefused(tandem, 409, 'FormerSourceChanged', /cluster0 accepts user writes.*setUserWriteBlockMode/)
    await setBlocking(pair.leftClient, true)
    await reverse(tandem)
  })

  it.each([
    ['a document', () => things(pair.leftClient).insertOne({ _id: 2 })],
    ['a collection', () => pair.leftClient.db('other').createCollection('new')],
    ['a database', () => pair.leftClient.db('app').dropDatabase()],
  ] as const)('when %s of the former source was changed after the commit', async (_what, change) => {
    await using tandem = await commitWith(reversible)
    await setBlocking(pair.leftClient, false)
    await change()
    await setBlocking(pair.leftClient, true)
    await expectRefused(tandem, 409, 'FormerSourceChanged', /on cluster0 was changed after the commit/)
  })

  it.each(['left', 'right'])('when the oplog of the cluster on the %s no longer reaches back', async (side) => {
    await using tandem = await commitWith(reversible)
    await loseOplog(side === 'left' ? pair.leftClient : pair.rightClient)
    await expectRefused(tandem, 422, 'OplogWindowLost', new RegExp(`cluster${side === 'left' ? 0 : 1} no longer`))
  })

  /** By notes, which are no writes: the cluster's data stays what it is. */
  async function loseOplog(client: MongoClient): Promise<void> {
    const oplog = client.db('local').collection('oplog.rs')
    const [newest] = await oplog.find().sort({ $natural: -1 }).limit(1).toArray()
    await vi.waitFor(async () => {
      for (let note = 0; note < 5; note++) {
        await client.db('admin').command({ appendOplogNote: 1, data: { text: 'x'.repeat(500_000) } })
      }
      const [oldest] = await oplog.find().sort({ $natural: 1 }).limit(1).toArray()
      expect(oldest?.['ts'].greaterThan(newest?.['ts'])).toBe(true)
    }, patience)
  }

  it('when the new source holds what cannot be synced, and is accepted when that is gone', async () => {
    await using tandem = await commitWith(reversible)
    await pair.rightClient.db('app').createCollection('weather', { timeseries: { timeField: 'at' } })
    await expectRefused(tandem, 422, 'UnsupportedCollection', /app\.weather.*time-series/)
    await pair.rightClient.db('app').collection('weather').drop()
    await reverse(tandem)
  })

  it('by an instance that another one has overtaken', async () => {
    await using tandem = await commitWith(reversible)
    await using other = await pair.startTandem()
    expect((await connected(other)).state).toBe('COMMITTED')
    await reverse(tandem)
    const answer = await other.post('reverse')
    expect(answer).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    await commit(tandem)
    await pair.expectEqual()
  })

  it('in REVERSING, as all other commands', async () => {
    await using tandem = await commitWith(reversible)
    const admin = pair.leftClient.db('admin')
    await admin.command({
      configureFailPoint: 'failCommand',
      mode: 'alwaysOn',
      data: { failCommands: ['listCollections'], errorCode: 11600, closeConnection: false },
    })
    try {
      expect(await tandem.post('reverse')).toEqual(accepted)
      await tandem.waitFor(({ state }) => state === 'REVERSING', { timeoutSeconds: 10, what: 'REVERSING' })
      for (const command of ['start', 'pause', 'resume', 'commit', 'reverse']) {
        const body = command === 'start' ? { source: 'cluster0', destination: 'cluster1' } : {}
        expect(await tandem.post(command, body)).toMatchObject({ status: 409, body: { error: 'WrongState' } })
      }
      expect(await tandem.progress()).toMatchObject({ state: 'REVERSING', canCommit: false, lagTimeSeconds: null })
    } finally {
      await admin.command({ configureFailPoint: 'failCommand', mode: 'off' })
    }
    await canCommit(tandem)
  })
})
