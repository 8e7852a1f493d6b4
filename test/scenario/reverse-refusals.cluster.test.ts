import type { Document, MongoClient } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { VerificationSide } from '../../src/domain/progress.ts'
import { accepted, canCommit, commit } from '../support/commits.ts'
import {
  connected,
  patience,
  ReversiblePair,
  reverse,
  reversible,
  setBlocking,
  things,
} from '../support/reversible-pair.ts'
import { type CommandAnswer, startSync, type Tandem } from '../support/tandem-process.ts'

/** Tests when reverse is refused. Each refusal has a named error and changes nothing. */

/** The servers truncate the oplog to one megabyte at every checkpoint, which runs every second. They write no periodic no-ops. */
const pair = new ReversiblePair({
  oplogSizeMB: 1,
  extraArgs: ['--syncdelay', '1', '--setParameter', 'writePeriodicNoops=false'],
})

describe('reverse is refused', () => {
  /** Returns the progress without the lags of the verifier, which may still change while the verifier ends. */
  async function shown(tandem: Tandem): Promise<unknown> {
    const { verification, ...progress } = await tandem.progress()
    const withoutLag = ({ lagTimeSeconds: _, ...side }: VerificationSide): unknown => side
    return {
      ...progress,
      verification: verification && [withoutLag(verification.source), withoutLag(verification.destination)],
    }
  }

  async function expectRefused(tandem: Tandem, status: number, error: string, description: RegExp): Promise<void> {
    const before = [await shown(tandem), await stored()]
    const answer: CommandAnswer = await tandem.post('reverse')
    expect(answer).toMatchObject({
      status,
      body: { success: false, error, errorDescription: expect.stringMatching(description) },
    })
    expect([await shown(tandem), await stored()]).toEqual(before)
    expect((await tandem.progress()).state).toBe('COMMITTED')
  }

  /** Returns the stored state from which a restart would continue. */
  async function stored(): Promise<Document[]> {
    const found: Document[] = []
    for (const client of [pair.leftClient, pair.rightClient]) {
      for (const name of ['sync', 'instances', 'positions', 'collections']) {
        found.push(...(await client.db(metadataDatabase).collection(name).find().toArray()))
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
    '2.1: unless the sync blocks both clusters, and progress warns about it: %s',
    async (enableUserWriteBlocking) => {
      await using tandem = await commitWith({ reversible: true, enableUserWriteBlocking })
      expect((await tandem.progress()).warnings).toEqual([expect.stringMatching(/sourceAndDestination/)])
      await expectRefused(tandem, 409, 'WrongState', new RegExp(`${enableUserWriteBlocking}.*sourceAndDestination`))
    },
  )

  it('while the former source accepts user writes, and is accepted once that cluster is blocked again', async () => {
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

  it('when the former source was changed, and a new sync with existingData "converge" can replace the reversal', async () => {
    await using tandem = await commitWith(reversible)
    await setBlocking(pair.leftClient, false)
    await things(pair.leftClient).insertOne({ _id: 'only here' })
    await setBlocking(pair.leftClient, true)
    await expectRefused(tandem, 409, 'FormerSourceChanged', /app\.things on cluster0.*"existingData": "converge"/)
    await tandem.stop()
    await things(pair.rightClient).insertOne({ _id: 'written after' })
    await pair.rightClient.db(metadataDatabase).dropDatabase()

    await using successor = await pair.startTandem()
    await startSync(successor, { source: 'cluster1', destination: 'cluster0', existingData: 'converge' })
    await commit(successor)
    await pair.expectEqual()
    expect(await things(pair.leftClient).distinct('_id')).toEqual([1, 'written after'])
  })

  it('when the oplog of the former source no longer reaches back to the commit, because nothing else shows whether that cluster was changed', async () => {
    await using tandem = await commitWith(reversible)
    await loseOplog(pair.leftClient)
    await expectRefused(tandem, 422, 'OplogWindowLost', /cluster0 no longer.*"existingData": "converge"/)
  })

  /** Rolls the oplog over with no-ops, which leave the data of the cluster unchanged. */
  async function loseOplog(client: MongoClient): Promise<void> {
    const oplog = client.db('local').collection('oplog.rs')
    const [newest] = await oplog.find().sort({ $natural: -1 }).limit(1).toArray()
    await vi.waitFor(async () => {
      for (let count = 0; count < 5; count++) {
        await client.db('admin').command({ appendOplogNote: 1, data: { text: 'x'.repeat(500_000) } })
      }
      const [oldest] = await oplog.find().sort({ $natural: 1 }).limit(1).toArray()
      expect(oldest?.['ts'].greaterThan(newest?.['ts'])).toBe(true)
    }, patience)
  }

  it('while the new source has an unsupported collection, and is accepted once the collection is dropped', async () => {
    await using tandem = await commitWith(reversible)
    await pair.rightClient.db('app').createCollection('weather', { timeseries: { timeField: 'at' } })
    await expectRefused(tandem, 422, 'UnsupportedCollection', /app\.weather.*time-series/)
    await pair.rightClient.db('app').collection('weather').drop()
    await reverse(tandem)
  })

  it('on an instance after another instance has reversed the sync', async () => {
    await using tandem = await commitWith(reversible)
    await using other = await pair.startTandem()
    expect((await connected(other)).state).toBe('COMMITTED')
    await reverse(tandem)
    const answer = await other.post('reverse')
    expect(answer).toMatchObject({ status: 409, body: { error: 'WrongState' } })
    await commit(tandem)
    await pair.expectEqual()
  })

  it('in REVERSING, as are all other commands', async () => {
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
