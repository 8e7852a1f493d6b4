import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, canCommit, commit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { seedForCutover, things } from '../support/cutover-data.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { buildPrevious, type PreviousBuild, previousCommit } from './previous-build.ts'

/**
 * This program continues a sync that the program of the previous release began. The previous program is built from the
 * newest tag, or from the commit in `TANDEM_PREVIOUS`. The tests are skipped if there is neither.
 */

const previous = previousCommit()

describe.skipIf(previous === null)(`a sync that the build of ${previous} left`, () => {
  const pair = pairedSets()
  let older: PreviousBuild

  beforeAll(() => {
    older = buildPrevious(previous as string)
  })
  afterAll(() => older?.[Symbol.dispose]())

  /** Starts an instance of the older program and a sync, and waits until the sync can be committed. */
  async function startOlder(): Promise<Tandem> {
    await seedForCutover(pair.sourceClient)
    const tandem = await pair.startInstance({ entry: older.entry })
    await startSync(tandem, { enableUserWriteBlocking: 'sourceAndDestination', reversible: true })
    await canCommit(tandem)
    return tandem
  }

  const write = (_id: string, client = pair.sourceClient) => things(client).insertOne({ _id, u: _id })

  async function expectEqual(): Promise<void> {
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  }

  it('RUNNING is continued, with the writes that were made meanwhile, and committed', async () => {
    await (await startOlder()).kill9()
    await write('meanwhile')
    await things(pair.sourceClient).deleteOne({ _id: 8 })
    await using tandem = await pair.startInstance()
    await commit(tandem)
    expect(await things(pair.destinationClient).findOne({ _id: 'meanwhile' })).not.toBeNull()
    await expectEqual()
  })

  it('in the middle of the copy is copied to the end', async () => {
    await things(pair.sourceClient).insertMany(
      Array.from({ length: 20_000 }, (_, _id) => ({ _id, u: _id, by: 'x'.repeat(500) })),
    )
    {
      await using tandem = await pair.startInstance({ entry: older.entry })
      await fetch(`${tandem.url}/api/v1/limits`, { method: 'PATCH', body: '{"bytesPerSecond":1048576}' })
      await startSync(tandem, {})
      const isCopying = ({ collectionCopy }: { collectionCopy: { estimatedCopiedBytes: number } | null }) =>
        (collectionCopy?.estimatedCopiedBytes ?? 0) > 100_000
      await tandem.waitFor(isCopying, { timeoutSeconds: 60, what: 'some documents are copied' })
      await tandem.kill9()
    }
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    await fetch(`${tandem.url}/api/v1/limits`, { method: 'PATCH', body: '{"bytesPerSecond":null}' })
    await commit(tandem)
    await expectEqual()
  })

  describe('in the middle of the first pass of the verifier', () => {
    const bulk = Array.from({ length: 24 }, (_, number) => `bulk${number}`)
    const limit = (tandem: Tandem, bytesPerSecond: number | null) =>
      fetch(`${tandem.url}/api/v1/limits`, { method: 'PATCH', body: JSON.stringify({ bytesPerSecond }) })
    const isHashing = (tandem: Tandem) =>
      tandem.waitFor(
        ({ verification }) =>
          verification?.source.phase === 'initial hashing' && verification.source.scannedCollectionCount > 2,
        { timeoutSeconds: 120, what: 'some ranges are compared' },
      )

    /** Seeds 24 MB. With the lowest limit, the copy and the comparison take half a minute. */
    async function seedBulk(): Promise<void> {
      await seedForCutover(pair.sourceClient)
      const rows = Array.from({ length: 500 }, (_, _id) => ({ _id, text: 'x'.repeat(2_000) }))
      for (const name of bulk) {
        await pair.sourceClient.db('app').collection<{ _id: number; text: string }>(name).insertMany(rows)
      }
    }

    async function commitAll(...all: Tandem[]): Promise<void> {
      for (const tandem of all) await canCommit(tandem)
      for (const tandem of all) expect(await tandem.post('commit')).toEqual(accepted)
      for (const tandem of all) await committed(tandem)
      await expectEqual()
    }

    it('is compared to the end by two instances', async () => {
      await seedBulk()
      {
        await using tandem = await pair.startInstance({ entry: older.entry, id: 'a' })
        await limit(tandem, 1_048_576)
        await startSync(tandem, {})
        await isHashing(tandem)
        await tandem.kill9()
      }
      await using a = await pair.startInstance({ id: 'a' })
      await using b = await pair.startInstance({ id: 'b' })
      expect(await b.post('start', { source: 'cluster0', destination: 'cluster1' })).toMatchObject(accepted)
      for (const tandem of [a, b]) await limit(tandem, null)
      await commitAll(a, b)
    })

    it.each(['older', 'newer'])('is compared by instances of both programs, the %s one coordinates', async (first) => {
      await seedBulk()
      const entryOf = { older: { entry: older.entry }, newer: {} }
      const second = first === 'older' ? 'newer' : 'older'
      await using one = await pair.startInstance({ ...entryOf[first as 'older' | 'newer'], id: 'one' })
      await using other = await pair.startInstance({ ...entryOf[second], id: 'other' })
      const body = { source: 'cluster0', destination: 'cluster1' }
      for (const tandem of [one, other]) await limit(tandem, 1_048_576)
      expect(await one.post('start', body)).toMatchObject(accepted)
      expect(await other.post('start', body)).toMatchObject(accepted)
      await isHashing(one)
      expect((await other.progress()).coordinatorID).toBe('one')
      for (const tandem of [one, other]) await limit(tandem, null)
      await commitAll(one, other)
    })
  })

  it('PAUSED stays PAUSED until it is resumed', async () => {
    {
      await using tandem = await startOlder()
      expect(await tandem.post('pause')).toEqual(accepted)
      await tandem.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 30, what: 'PAUSED' })
    }
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    expect((await tandem.progress()).state).toBe('PAUSED')
    expect(await tandem.post('resume')).toEqual(accepted)
    await commit(tandem)
    await expectEqual()
  })

  it('FAILED after its verification is repaired and committed', async () => {
    {
      await using tandem = await startOlder()
      const updates = [{ q: { _id: 7 }, u: { $set: { u: -7 } } }]
      await pair.destinationClient.db('app').command({ update: 'things', updates, mayBypassWriteBlocking: true })
      expect(await tandem.post('commit')).toEqual(accepted)
      await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 60, what: 'FAILED' })
    }
    await using tandem = await pair.startInstance()
    expect(await tandem.progress()).toMatchObject({ state: 'FAILED', failure: { error: 'VerificationFailed' } })
    expect(await tandem.post('repair')).toMatchObject({ body: { success: true, repairedDocuments: 1 } })
    expect(await tandem.post('resume')).toEqual(accepted)
    await committed(tandem)
    await expectEqual()
  })

  it('keeps its metadata database, in which instances of both programs that are started together agree', async () => {
    await seedForCutover(pair.sourceClient)
    const body = { source: 'cluster0', destination: 'cluster1' }
    const { metadataDatabase: theirs } = await import(path.join(path.dirname(older.entry), 'domain/namespace.js'))
    const keepsOther = theirs !== metadataDatabase
    const found = new Set<string>()
    for (const delays of [
      [0, 0],
      [0, 20],
      [20, 0],
      [0, 60],
      [60, 0],
      [0, 120],
      [120, 0],
    ]) {
      await emptyCluster(pair.destinationClient)
      await using one = await pair.startInstance({ entry: older.entry, id: 'older' })
      await using other = await pair.startInstance({ id: 'newer' })
      const answers = await Promise.all(
        [one, other].map(async (tandem, at) => {
          await sleep(delays[at])
          return await tandem.post('start', body)
        }),
      )
      const records = await Promise.all(
        [olderMetadataDatabase, metadataDatabase].map((name) =>
          pair.destinationClient
            .db(name)
            .collection('sync')
            .countDocuments({ supersededBy: { $exists: false } }),
        ),
      )
      expect(records.reduce((sum, count) => sum + count)).toBe(1)
      const isOlder = records[0] === 1
      found.add(isOlder ? olderMetadataDatabase : metadataDatabase)
      expect(answers[1]).toMatchObject(accepted)
      // An instance of a program that keeps its metadata in another database refuses its start by the version if it has
      // found no sync before the other one reserved the name.
      if (!isOlder && keepsOther) expect(answers[0]?.status).toBe(422)
      else expect(answers[0]).toMatchObject(accepted)
      await canCommit(other)
    }
    console.log(`metadata was kept in ${[...found].join(' and in ')}`)
  })

  it('COMMITTED is reversed, and what the older program reversed is continued', async () => {
    {
      await using tandem = await startOlder()
      await commit(tandem)
    }
    await write('of users', pair.destinationClient)
    {
      await using tandem = await pair.startInstance()
      expect((await tandem.progress()).state).toBe('COMMITTED')
      expect(await tandem.post('reverse')).toEqual(accepted)
      await commit(tandem)
    }
    expect(await things(pair.sourceClient).findOne({ _id: 'of users' })).not.toBeNull()
    await expectEqual()
  })
})
