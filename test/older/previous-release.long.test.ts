import type { Document } from 'mongodb'
import { beforeEach, describe, expect, it, vi } from 'vitest'
import { metadataDatabase, olderMetadataDatabase } from '../../src/domain/namespace.ts'
import { accepted, canCommit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { commitUntilItDies } from '../support/cutover.ts'
import { seedForCutover, things } from '../support/cutover-data.ts'
import { holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { type Faults, startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'
import { moveToOlderDatabase } from './older-database.ts'
import { type OlderSync, olderContext, olderSyncs } from './stages-of-0.1.ts'
import { instanceOfVersion4, stagesOfVersion4, storeAsVersion4 } from './version-4.ts'

/**
 * This release continues a sync that an earlier release began, from any stored state. No write of a user is lost, and
 * the sync completes.
 */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }
const both = 'sourceAndDestination'

interface StoredInstance {
  _id: string
  snapshot: string
}
/** The metadata database. `storeAs` moves it to the name of earlier releases. */
let database = metadataDatabase as string
beforeEach(() => {
  database = metadataDatabase
})
const stored = (on = pair.destinationClient) => on.db(database)

/** Moves the metadata to the database in which earlier releases kept it, for the rest of the test. */
async function useOlderDatabase(): Promise<void> {
  for (const client of [pair.sourceClient, pair.destinationClient]) await moveToOlderDatabase(client)
  database = olderMetadataDatabase
}

async function storedAsVersion4(on = pair.destinationClient): Promise<void> {
  await useOlderDatabase()
  await storeAsVersion4(stored(on))
}

const stages = (on = pair.destinationClient) => stored(on).collection<Document & { _id: string }>('stages')

async function startedInstance(enableUserWriteBlocking: string, faults: Faults = {}): Promise<Tandem> {
  await seedForCutover(pair.sourceClient)
  const tandem = await pair.startInstance({ faults })
  await startSync(tandem, { enableUserWriteBlocking, reversible: enableUserWriteBlocking === both })
  await canCommit(tandem)
  return tandem
}

async function commitDiesAt(step: string, enableUserWriteBlocking: string): Promise<void> {
  await using tandem = await startedInstance(enableUserWriteBlocking, { crashAt: step })
  await commitUntilItDies(tandem)
  await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
}

/**
 * Replaces the stored state with the state that the release of version 1 would have stored at the same point. Keeps the
 * timestamps of the process that ended.
 */
async function storeAsOlder(name: keyof typeof olderSyncs, on = pair.destinationClient): Promise<void> {
  await useOlderDatabase()
  const older: OlderSync = olderSyncs[name]
  const current = (await stages(on).findOne()) as unknown as { context: Record<string, unknown> }
  const { context } = stagesOfVersion4(current) as { context: Record<string, unknown> }
  const ofOwn = (fields: Record<string, unknown>, own: Record<string, unknown>, ...names: string[]) => {
    const taken = names.filter((field) => field in own && fields[field] !== undefined && fields[field] !== null)
    return { ...fields, ...Object.fromEntries(taken.map((field) => [field, own[field]])) }
  }
  const replaced = { _id: 'sync', ...ofOwn(older.stages, context, 'commitPoint', 'quietUntil', 'term') }
  await update('stages', { _id: 'sync' }, replaced, on)
  const instances = stored(on).collection<StoredInstance>('instances')
  for await (const { _id, snapshot } of instances.find()) {
    const own = JSON.parse(instanceOfVersion4({ snapshot })['snapshot'])
    const fields = ofOwn({ ...olderContext, ...older.instance }, own, 'commitPoint', 'configuration', 'limits')
    await update('instances', { _id }, { $set: { snapshot: JSON.stringify(fields) } }, on)
  }
}

/** For two earlier releases: a function that stores what the release would have stored in the state with that name. */
const releases = {
  'version 1 of the state': storeAsOlder,
  'version 4 of the state': (_name: keyof typeof olderSyncs, on = pair.destinationClient) => storedAsVersion4(on),
}

/** Updates metadata, also while users' writes are blocked. */
const update = (collection: string, q: Document, u: Document, on = pair.destinationClient) =>
  stored(on).command({ update: collection, updates: [{ q, u }], mayBypassWriteBlocking: true })

const write = (_id: string) => things(pair.sourceClient).insertOne({ _id, u: _id, by: 'the application' })

async function expectCommitted(tandem: Tandem): Promise<void> {
  expect((await committed(tandem)).canWrite).toBe(true)
  expect(await writesBlocked(pair.destinationClient)).toBe(false)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  // The schema version prevents the older release from continuing the sync. The metadata database keeps its name.
  expect(await stages().findOne()).toMatchObject({ schemaVersion: 6, value: 'committed' })
}

async function commit(tandem: Tandem): Promise<void> {
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await expectCommitted(tandem)
}

describe.each(Object.entries(releases))('a sync that a release with %s left', (_, storeAs) => {
  it('continues from RUNNING and applies writes that were made meanwhile', async () => {
    await (await startedInstance(both)).kill9()
    await storeAs('RUNNING, canCommit')
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    await commit(tandem)
  })

  it('stays PAUSED until it is resumed', async () => {
    {
      await using tandem = await startedInstance(both)
      expect(await tandem.post('pause')).toEqual(accepted)
      await tandem.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 30, what: 'PAUSED' })
    }
    await storeAs('PAUSED')
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    expect((await tandem.progress()).state).toBe('PAUSED')
    expect(await tandem.post('resume')).toEqual(accepted)
    await commit(tandem)
  })

  it.each(['commitPoint', 'prepareIndexes', 'verdict', 'decide'] as const)(
    'takes a new commit timestamp if the process died at %s of a commit, before the decision',
    async (step) => {
      await commitDiesAt(step, 'destinationOnly')
      await storeAs(`died at ${step}`)
      await write('meanwhile')
      await things(pair.sourceClient).deleteOne({ _id: 8 })
      await things(pair.sourceClient).insertOne({ _id: 'takes over', u: 8 })
      await using tandem = await pair.startInstance()
      await expectCommitted(tandem)
      expect(await things(pair.destinationClient).findOne({ _id: 'meanwhile' })).not.toBeNull()
    },
  )

  it('enables writes on the destination if the process died at unblock of a commit, after the decision', async () => {
    await commitDiesAt('unblock', both)
    await storeAs('died at unblock')
    expect(await writesBlocked(pair.destinationClient)).toBe(true)
    await using tandem = await pair.startInstance()
    await expectCommitted(tandem)
  })

  it.each(['unblocked', 'finishIndexes'] as const)(
    'keeps users’ writes on the destination if the process died at %s of a commit',
    async (step) => {
      await commitDiesAt(step, both)
      await storeAs(`died at ${step}`)
      const ofUsers = things(pair.destinationClient)
      await ofUsers.insertOne({ _id: 'new', u: 'new', by: 'users' })
      await ofUsers.updateOne({ _id: 5 }, { $set: { by: 'users' } })
      await ofUsers.deleteOne({ _id: 6 })
      await using tandem = await pair.startInstance()
      await committed(tandem)
      expect(await ofUsers.findOne({ _id: 'new' })).toEqual({ _id: 'new', u: 'new', by: 'users' })
      expect(await ofUsers.findOne({ _id: 5 })).toEqual({ _id: 5, u: 5, by: 'users' })
      expect(await ofUsers.findOne({ _id: 6 })).toBeNull()
      await ofUsers.deleteOne({ _id: 'new' })
      await ofUsers.updateOne({ _id: 5 }, { $set: { by: 'seed' } })
      await ofUsers.insertOne({ _id: 6, u: 6, by: 'seed' })
      await expectCommitted(tandem)
    },
  )

  it('stays COMMITTED and can be reversed', async () => {
    {
      await using tandem = await startedInstance(both)
      await commit(tandem)
    }
    await storeAs('COMMITTED')
    await things(pair.destinationClient).insertOne({ _id: 'new', u: 'new', by: 'users' })
    await using tandem = await pair.startInstance()
    expect((await tandem.progress()).state).toBe('COMMITTED')
    expect(await tandem.post('reverse')).toEqual(accepted)
    await canCommit(tandem)
    expect(await tandem.post('commit')).toEqual(accepted)
    await committed(tandem)
    expect(await things(pair.sourceClient).findOne({ _id: 'new' })).not.toBeNull()
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  })
})

describe('a sync that a release with version 4 of the state left', () => {
  const kibibyte = 1024
  const names = Array.from({ length: 12 }, (_, number) => `copied${number}`)
  const app = () => pair.sourceClient.db('app')

  async function limit({ url }: Tandem, limits: object): Promise<void> {
    expect((await fetch(`${url}/api/v1/limits`, { method: 'PATCH', body: JSON.stringify(limits) })).status).toBe(200)
  }

  it('continues the copy, and copies only the segments that are not copied yet', async () => {
    const text = 'x'.repeat(32 * kibibyte)
    const documents = Array.from({ length: 32 }, (_, _id) => ({ _id, text }))
    for (const name of names) await app().collection<{ _id: number }>(name).insertMany(documents)
    {
      await using tandem = await pair.startInstance()
      await limit(tandem, { bytesPerSecond: 1024 * kibibyte, readConcurrency: 1 })
      await startSync(tandem, { enableUserWriteBlocking: 'destinationOnly' })
      const copied = stored().collection('segments')
      await vi.waitFor(async () => expect(await copied.countDocuments({ done: true })).toBeGreaterThan(1), patience)
      await tandem.kill9()
    }
    await storedAsVersion4()
    const segments = stored().collection<Document & { _id: string }>('segments')
    const before = await segments.find().toArray()
    expect(before.filter(({ done }) => !done).length).toBeGreaterThan(1)
    expect(before.every((segment) => 'rank' in segment && !('priority' in segment))).toBe(true)
    for (const name of names) await app().collection<{ _id: number }>(name).deleteOne({ _id: 3 })
    await using tandem = await pair.startInstance()
    await limit(tandem, { bytesPerSecond: null, readConcurrency: null })
    await canCommit(tandem)
    for (const { _id, done, attempts } of before.filter(({ done }) => done)) {
      expect(await segments.findOne({ _id })).toMatchObject({ done, attempts })
    }
    await commit(tandem)
  })

  it('follows definitions, and replaces the entries of the catalog that it changes', async () => {
    await (await startedInstance('destinationOnly')).kill9()
    await storedAsVersion4()
    const catalog = stored().collection('collections')
    expect(await catalog.countDocuments({ tenure: { $exists: true }, term: { $exists: false } })).toBeGreaterThan(1)
    await using tandem = await pair.startInstance()
    await things(pair.sourceClient).createIndex({ later: 1 })
    await vi.waitFor(async () => {
      expect(await catalog.findOne({ database: 'app', name: 'things' })).toMatchObject({ schemaVersion: 3 })
    }, patience)
    const changed = await catalog.findOne({ database: 'app', name: 'things' })
    expect(changed).toHaveProperty('term')
    expect(changed).not.toHaveProperty('tenure')
    await app().collection('things').rename('renamed')
    await app().collection('copied0').insertOne({ n: 1 })
    await commit(tandem)
  })

  it.each(['reverseCopy', 'reverseSwitch', 'reverseDefinitions'])(
    'is reversed if the process died at %s',
    async (step) => {
      {
        await using tandem = await startedInstance(both, { crashAt: step })
        await commit(tandem)
        await tandem.post('reverse').catch((error) => {
          if (!(error instanceof TypeError)) throw error
        })
        await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
      }
      for (const client of [pair.sourceClient, pair.destinationClient]) await storedAsVersion4(client)
      await using tandem = await pair.startInstance()
      await canCommit(tandem)
      await things(pair.destinationClient).insertOne({ _id: 'meanwhile', u: 'meanwhile', by: 'users' })
      expect(await tandem.post('commit')).toEqual(accepted)
      await committed(tandem)
      expect(await things(pair.sourceClient).findOne({ _id: 'meanwhile' })).not.toBeNull()
      expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
    },
  )
})

describe('a sync that an older release reversed without announcing the reversal', () => {
  async function expectReversed(): Promise<void> {
    await things(pair.destinationClient).insertOne({ _id: 'meanwhile', u: 'meanwhile', by: 'users' })
    await using tandem = await pair.startInstance()
    await canCommit(tandem)
    expect((await tandem.progress()).directionMapping?.Source).toMatch(/^cluster1/)
    expect(await tandem.post('commit')).toEqual(accepted)
    await committed(tandem)
    expect(await things(pair.sourceClient).findOne({ _id: 'meanwhile' })).not.toBeNull()
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
    // This release announces a reversal.
    expect(await tandem.post('reverse')).toEqual(accepted)
    await canCommit(tandem)
    expect(await stored(pair.sourceClient).collection('moves').findOne()).toMatchObject({ generation: 2 })
  }

  it('continues and can be reversed again', async () => {
    {
      await using tandem = await startedInstance(both)
      await commit(tandem)
      expect(await tandem.post('reverse')).toEqual(accepted)
      await canCommit(tandem)
      await tandem.kill9()
    }
    await storeAsOlder('reversed, RUNNING', pair.sourceClient)
    await stored().collection('moves').drop()
    await expectReversed()
  })

  it('continues if the process died while the metadata existed on both clusters', async () => {
    {
      await using tandem = await startedInstance(both, { crashAt: 'reverseClearFormer' })
      await commit(tandem)
      await tandem.post('reverse').catch((error) => {
        if (!(error instanceof TypeError)) throw error
      })
      await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
    }
    await storeAsOlder('reversal died at reverseSwitch')
    await storeAsOlder('reversal died at reverseDefinitions', pair.sourceClient)
    await stored().collection('moves').drop()
    await expectReversed()
  })
})

describe('a commit that failed in the previous release', () => {
  const setOnDestination = (u: number) =>
    pair.destinationClient.db('app').command({
      update: 'things',
      updates: [{ q: { _id: 7 }, u: { $set: { u } } }],
      mayBypassWriteBlocking: true,
    })

  async function fails(): Promise<Tandem> {
    const tandem = await startedInstance(both)
    await setOnDestination(-7)
    expect(await tandem.post('commit')).toEqual(accepted)
    await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'FAILED' })
    return tandem
  }

  it('is still FAILED, and resume completes it', async () => {
    await (await fails()).kill9()
    await storeAsOlder('FAILED with VerificationFailed')
    await setOnDestination(7)
    await using tandem = await pair.startInstance()
    expect(await tandem.progress()).toMatchObject({ state: 'FAILED', failure: { error: 'VerificationFailed' } })
    expect(await tandem.post('resume')).toEqual(accepted)
    await expectCommitted(tandem)
  })

  it('and was aborted in that release has ended, so the next command may be a rehearsal', async () => {
    {
      await using tandem = await fails()
      expect(await tandem.post('abort')).toEqual(accepted)
      await setOnDestination(7)
      await vi.waitFor(async () => expect(await stages().findOne()).toMatchObject({ value: 'replicating' }), patience)
      await canCommit(tandem)
    }
    await storeAsOlder('FAILED, aborted and undone')
    expect(await writesBlocked(pair.sourceClient)).toBe(false)
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    await canCommit(tandem)
    expect(await tandem.post('commit', { dryRun: true })).toEqual(accepted)
    await vi.waitFor(
      async () => expect(await tandem.progress()).toMatchObject({ lastRehearsal: { verdict: 'equal' } }),
      patience,
    )
    await commit(tandem)
  })
})

it('an abort that the previous release acknowledged but did not complete is completed, so users can write on the source', async () => {
  {
    await using tandem = await startedInstance(both)
    await using held = await holdTandem(pair.destinationClient, 'collMod', 'app.expiring')
    expect(await tandem.post('commit')).toEqual(accepted)
    await held.reached()
    expect(await tandem.post('abort')).toEqual(accepted)
    await tandem.kill9()
  }
  await storeAsOlder('abort acknowledged, killed before undone')
  await pair.sourceClient.db('admin').command({ setUserWriteBlockMode: 1, global: true })
  await using tandem = await pair.startInstance()
  await vi.waitFor(async () => expect(await writesBlocked(pair.sourceClient)).toBe(false), patience)
  await canCommit(tandem)
  await write('after the abort')
  await commit(tandem)
})
