import type { Document, MongoClient } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { holdCommand as holdCommandOf, holdCopy as holdCopyOf } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'

/** Compares commands and states, as seen over HTTP, with their definitions in docs/contract.md. See test/contract.md. */

const pair = pairedSets()

const patience = { timeout: 30_000, interval: 20 }
const start = { source: 'cluster0', destination: 'cluster1', verification: { enabled: false } }

const startInstance = pair.startInstance

const holdCopy = (namespace: string) => holdCopyOf(pair.destinationClient, namespace)
const holdCommand = (command: string, namespace: string) => holdCommandOf(pair.destinationClient, command, namespace)

async function expectEqualClusters(): Promise<void> {
  const { differences, equal } = await compareClusters(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
  expect(equal).toBe(true)
}

interface Row extends Document {
  _id: number | string | null
}

const app = (client: MongoClient, collection: string) => client.db('app').collection<Row>(collection)

const arrives = (collection: string, filter: Document) =>
  vi.waitFor(async () => expect(await app(pair.destinationClient, collection).findOne(filter)).not.toBeNull(), patience)

const numbered = (count: number, from = 0, bytes = 10) =>
  Array.from({ length: count }, (_, at) => ({ _id: from + at, text: 'x'.repeat(bytes) }))

function copyOf(progress: Progress): NonNullable<Progress['collectionCopy']> {
  expect(progress.collectionCopy).not.toBeNull()
  return progress.collectionCopy as NonNullable<Progress['collectionCopy']>
}

describe('a whole sync', () => {
  it('3: a fresh instance shows null for every field except state and canCommit', async () => {
    await using tandem = await startInstance()
    const response = await fetch(`${tandem.url}/api/v1/progress`)
    expect(response.status).toBe(200)
    expect(await response.json()).toEqual({
      success: true,
      progress: {
        state: 'IDLE',
        canCommit: false,
        canWrite: null,
        info: null,
        lagTimeSeconds: null,
        totalEventsApplied: null,
        collectionCopy: null,
        directionMapping: null,
        mongosyncID: null,
        coordinatorID: null,
        verification: null,
      },
    })
  })

  it('3: start turns IDLE into RUNNING', async () => {
    await using tandem = await startInstance()
    expect((await tandem.progress()).state).toBe('IDLE')
    expect(await tandem.post('start', start)).toMatchObject(accepted)
    expect((await tandem.progress()).state).toBe('RUNNING')
  })

  it('1: documents written before and after start are on the destination', async () => {
    await app(pair.sourceClient, 'things').insertMany(numbered(1500))
    await pair.sourceClient
      .db('other')
      .collection<Row>('more')
      .insertMany([{ _id: 'ä' }, { _id: null }])
    await using held = await holdCopy('app.things')
    await using tandem = await startInstance()
    await startSync(tandem)
    await held.reached()
    // These writes happen while the collection is copied: the copy, the change stream or both read them.
    await app(pair.sourceClient, 'things').deleteMany({ _id: { $lt: 10 } })
    await app(pair.sourceClient, 'things').updateMany({ _id: { $gte: 1490 } }, { $set: { changed: true } })
    await app(pair.sourceClient, 'things').insertOne({ _id: 5000 })
    await app(pair.sourceClient, 'created').insertOne({ _id: 1 })
    await held.release()
    await canCommit(tandem)
    await app(pair.sourceClient, 'things').insertOne({ _id: 6000 })
    await app(pair.sourceClient, 'things').replaceOne({ _id: 100 }, { replaced: true })
    await app(pair.sourceClient, 'things').deleteOne({ _id: 101 })
    await arrives('things', { _id: 6000 })
    await commit(tandem)
    await expectEqualClusters()
    expect(await app(pair.destinationClient, 'things').countDocuments()).toBe(1491)
  })

  it('1: cluster1 may be the source and cluster0 the destination', async () => {
    await app(pair.sourceClient, 'things').insertOne({ _id: 1 })
    await using tandem = await startTandem({ cluster0: pair.destination.uri, cluster1: pair.source.uri })
    await startSync(tandem, { source: 'cluster1', destination: 'cluster0' })
    const progress = await commit(tandem)
    expect(progress.directionMapping).toEqual({
      Source: `cluster1: ${pair.source.hosts[0]}`,
      Destination: `cluster0: ${pair.destination.hosts[0]}`,
    })
    await expectEqualClusters()
    expect(await app(pair.destinationClient, 'things').countDocuments()).toBe(1)
  })

  it('3: commit without verifier ends in COMMITTED', async () => {
    await using tandem = await startInstance()
    await startSync(tandem, { verification: { enabled: false } })
    const progress = await commit(tandem)
    expect(progress).toMatchObject({
      state: 'COMMITTED',
      canCommit: false,
      canWrite: true,
      info: 'commit completed',
      verification: null,
    })
  })

  it('facts 2.2: writes made while PAUSED arrive after resume, and a pause is accepted during the copy', async () => {
    // 3 MB, so that one reply does not have all documents.
    const padded = numbered(3000).map((document) => ({ ...document, text: 'x'.repeat(1_000) }))
    await app(pair.sourceClient, 'things').insertMany(padded)
    await using held = await holdCopy('app.things')
    await using tandem = await startInstance()
    await startSync(tandem)
    await held.reached()
    const pausing = tandem.post('pause')
    await vi.waitFor(async () => {
      const found = await pair.destinationClient.db(metadataDatabase).collection('instances').findOne()
      expect(found?.['snapshot']).toContain('"pauseRequested":true')
    }, patience)
    await held.release()
    expect(await pausing).toEqual(accepted)
    const paused = await tandem.progress()
    expect(paused).toMatchObject({ state: 'PAUSED', canCommit: false, lagTimeSeconds: null, info: 'collection copy' })
    expect(copyOf(paused).estimatedCopiedBytes).toBeLessThan(copyOf(paused).estimatedTotalBytes)
    await app(pair.sourceClient, 'things').insertOne({ _id: 'paused' })
    expect(await app(pair.destinationClient, 'things').findOne({ _id: 'paused' })).toBeNull()
    expect(await tandem.post('resume')).toEqual(accepted)
    expect((await tandem.progress()).state).toBe('RUNNING')
    await canCommit(tandem)
    expect(await tandem.post('pause')).toEqual(accepted)
    await app(pair.sourceClient, 'things').insertOne({ _id: 'paused again' })
    expect(await tandem.post('resume')).toEqual(accepted)
    await commit(tandem)
    await expectEqualClusters()
    expect(await app(pair.destinationClient, 'things').countDocuments()).toBe(3002)
  })
})

describe('commands and states', () => {
  it('2.5: commit is refused with CannotCommit until canCommit and succeeds after', async () => {
    await app(pair.sourceClient, 'things').insertMany(numbered(10))
    await using held = await holdCopy('app.things')
    await using tandem = await startInstance()
    await startSync(tandem)
    await held.reached()
    const before = await stored()
    expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: false })
    const refused = await tandem.post('commit')
    expect(refused).toMatchObject({ status: 409, body: { success: false, error: 'CannotCommit' } })
    expect(refused.body.errorDescription).toMatch(/canCommit/)
    expect(await stored()).toEqual(before)
    expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', info: 'collection copy' })
    await held.release()
    // This helper sends the commit right after the first progress that shows canCommit.
    await commit(tandem)
  })

  it('1: a second start with another body is refused and changes nothing', async () => {
    await app(pair.sourceClient, 'things').insertOne({ _id: 1 })
    await using tandem = await startInstance()
    await startSync(tandem)
    const progress = await canCommit(tandem)
    await readinessStored()
    const before = await stored()
    const other = { ...start, enableUserWriteBlocking: 'sourceAndDestination', buildIndexes: 'never' }
    const refused = await tandem.post('start', other)
    expect(refused).toMatchObject({ status: 409, body: { success: false, error: 'WrongState' } })
    expect(refused.body.errorDescription).toMatch(/RUNNING/)
    const swapped = await tandem.post('start', { ...start, source: 'cluster1', destination: 'cluster0' })
    expect(swapped.body.success).toBe(false)
    expect(await stored()).toEqual(before)
    expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', directionMapping: progress.directionMapping })
    await commit(tandem)
    // The write blocking of the first start still applies, so the source accepts writes.
    await app(pair.sourceClient, 'things').insertOne({ _id: 2 })
  })

  it('1: of two starts sent at the same time one is accepted', async () => {
    await using tandem = await startInstance()
    const answers = await Promise.all([tandem.post('start', start), tandem.post('start', start)])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    expect(answers.find(({ status }) => status === 409)?.body.error).toBe('WrongState')
    await commit(tandem)
  })

  it('facts 2.4: of two commits sent at the same time one is accepted', async () => {
    await using tandem = await startInstance()
    await startSync(tandem)
    await canCommit(tandem)
    const answers = await Promise.all([tandem.post('commit'), tandem.post('commit')])
    expect(answers.map(({ status }) => status).sort()).toEqual([200, 409])
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
  })

  const otherCommands: [state: string, reach: (tandem: Tandem) => Promise<unknown>, refused: string[]][] = [
    ['IDLE', async () => {}, ['pause', 'resume', 'commit', 'reverse']],
    ['RUNNING', reachRunning, ['start', 'resume', 'reverse']],
    ['PAUSED', reachPaused, ['start', 'pause', 'commit', 'reverse']],
    ['COMMITTING', reachCommitting, ['start', 'pause', 'resume', 'commit', 'reverse']],
    ['COMMITTED', reachCommitted, ['start', 'pause', 'resume', 'commit', 'reverse']],
  ]

  it.each(otherCommands)(
    '7: in %s other commands are refused with WrongState and change nothing',
    async (state, reach, refused) => {
      await app(pair.sourceClient, 'unique').createIndex({ u: 1 }, { unique: true })
      await using tandem = await startInstance()
      await reach(tandem)
      const before = [await stored(), stableFields(await tandem.progress())]
      for (const command of refused) {
        const answer = await tandem.post(command, command === 'start' ? start : {})
        expect({ command, ...answer }).toMatchObject({
          command,
          status: 409,
          body: { success: false, error: 'WrongState', errorDescription: expect.stringMatching(/\S/) },
        })
      }
      expect([await stored(), stableFields(await tandem.progress())]).toEqual(before)
      expect((await tandem.progress()).state).toBe(state)
    },
  )

  async function reachRunning(tandem: Tandem): Promise<void> {
    await startSync(tandem)
    await canCommit(tandem)
    await readinessStored()
  }

  async function reachPaused(tandem: Tandem): Promise<void> {
    await reachRunning(tandem)
    await tandem.post('pause')
  }

  /** The sync stays in COMMITTING until the setup of the next test turns the fail point off. */
  async function reachCommitting(tandem: Tandem): Promise<void> {
    await reachRunning(tandem)
    const held = await holdCommand('collMod', 'app.unique')
    await tandem.post('commit')
    await held.reached()
  }

  async function reachCommitted(tandem: Tandem): Promise<void> {
    await startSync(tandem)
    await commit(tandem)
  }

  /** Returns the fields of the progress that only a command or a failure changes. */
  function stableFields({ state, canCommit, canWrite, info, directionMapping, failure }: Progress): unknown {
    return { state, canCommit, canWrite, info, directionMapping, failure }
  }

  /** Waits until the end of the first verification is stored. Progress shows it a moment earlier. */
  async function readinessStored(): Promise<void> {
    await vi.waitFor(async () => expect(JSON.stringify(await stored())).toMatch(/initiallyVerified\W+true/), patience)
  }

  /** Returns the stored state from which a restart would continue, without positions. */
  async function stored(): Promise<Document[]> {
    const internal = pair.destinationClient.db(metadataDatabase)
    const [sync, instances] = await Promise.all([
      internal.collection('sync').find().toArray(),
      internal.collection('instances').find().toArray(),
    ])
    return [...sync, ...instances]
  }
})
