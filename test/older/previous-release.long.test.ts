import type { Document } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { accepted, committed, commitUntilItDies, readyToCommit } from '../support/cutover.ts'
import { seedForCutover, things } from '../support/cutover-data.ts'
import { holdTandem } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { type Faults, startSync, type Tandem } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'
import { type OlderSync, olderContext, olderSyncs } from './stages-of-0.1.ts'

/** A sync that the release before began, in whatever state, is taken over: nothing that users wrote is lost, and it ends. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }
const both = 'sourceAndDestination'

interface StoredInstance {
  _id: string
  snapshot: string
}
const stored = (on = pair.destinationClient) => on.db('tandem_internal')
const stages = (on = pair.destinationClient) => stored(on).collection<Document & { _id: string }>('stages')

async function begun(enableUserWriteBlocking: string, faults: Faults = {}): Promise<Tandem> {
  await seedForCutover(pair.sourceClient)
  const tandem = await pair.startInstance({ faults })
  await startSync(tandem, { enableUserWriteBlocking, reversible: enableUserWriteBlocking === both })
  await readyToCommit(tandem)
  return tandem
}

async function commitDiesAt(step: string, enableUserWriteBlocking: string): Promise<void> {
  await using tandem = await begun(enableUserWriteBlocking, { crashAt: step })
  await commitUntilItDies(tandem)
  await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
}

/** What the release before would have stored where the process that is gone stood, with that one's own times. */
async function asOlder(name: keyof typeof olderSyncs, on = pair.destinationClient): Promise<void> {
  const older: OlderSync = olderSyncs[name]
  const { context } = (await stages(on).findOne()) as unknown as { context: Record<string, unknown> }
  const ofOwn = (fields: Record<string, unknown>, own: Record<string, unknown>, ...names: string[]) => {
    const taken = names.filter((field) => field in own && fields[field] !== undefined && fields[field] !== null)
    return { ...fields, ...Object.fromEntries(taken.map((field) => [field, own[field]])) }
  }
  const replaced = { _id: 'sync', ...ofOwn(older.stages, context, 'commitPoint', 'quietUntil', 'term') }
  await update('stages', { _id: 'sync' }, replaced, on)
  const instances = stored(on).collection<StoredInstance>('instances')
  for await (const { _id, snapshot } of instances.find()) {
    const own = JSON.parse(snapshot)
    const fields = ofOwn({ ...olderContext, ...older.instance }, own, 'commitPoint', 'configuration', 'limits')
    await update('instances', { _id }, { $set: { snapshot: JSON.stringify(fields) } }, on)
  }
}

/** Also while users' writes are blocked. */
const update = (collection: string, q: Document, u: Document, on = pair.destinationClient) =>
  stored(on).command({ update: collection, updates: [{ q, u }], mayBypassWriteBlocking: true })

const write = (_id: string) => things(pair.sourceClient).insertOne({ _id, u: _id, by: 'the application' })

async function expectCommitted(tandem: Tandem): Promise<void> {
  expect((await committed(tandem)).canWrite).toBe(true)
  expect(await writesBlocked(pair.destinationClient)).toBe(false)
  expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  // By which the older release knows that it cannot go on with it.
  expect(await stages().findOne()).toMatchObject({ schemaVersion: 2, value: 'committed' })
}

async function commit(tandem: Tandem): Promise<void> {
  await readyToCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await expectCommitted(tandem)
}

describe('a sync that the release before left', () => {
  it('RUNNING goes on, with what was written meanwhile', async () => {
    await (await begun(both)).kill9()
    await asOlder('RUNNING, canCommit')
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    await commit(tandem)
  })

  it('PAUSED stays so until it is resumed', async () => {
    {
      await using tandem = await begun(both)
      expect(await tandem.post('pause')).toEqual(accepted)
      await tandem.waitFor(({ state }) => state === 'PAUSED', { timeoutSeconds: 30, what: 'PAUSED' })
    }
    await asOlder('PAUSED')
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    expect((await tandem.progress()).state).toBe('PAUSED')
    expect(await tandem.post('resume')).toEqual(accepted)
    await commit(tandem)
  })

  it.each(['commitPoint', 'prepareIndexes', 'verdict', 'decide'] as const)(
    'at a commit that died at %s, before its decision, takes a new commit point',
    async (step) => {
      await commitDiesAt(step, 'destinationOnly')
      await asOlder(`died at ${step}`)
      await write('meanwhile')
      await things(pair.sourceClient).deleteOne({ _id: 8 })
      await things(pair.sourceClient).insertOne({ _id: 'takes over', u: 8 })
      await using tandem = await pair.startInstance()
      await expectCommitted(tandem)
      expect(await things(pair.destinationClient).findOne({ _id: 'meanwhile' })).not.toBeNull()
    },
  )

  it('at a commit that died at unblock, after its decision, opens the destination', async () => {
    await commitDiesAt('unblock', both)
    await asOlder('died at unblock')
    expect(await writesBlocked(pair.destinationClient)).toBe(true)
    await using tandem = await pair.startInstance()
    await expectCommitted(tandem)
  })

  it.each(['unblocked', 'finishIndexes'] as const)(
    'at a commit that died at %s, when users write on the destination, changes nothing of theirs',
    async (step) => {
      await commitDiesAt(step, both)
      await asOlder(`died at ${step}`)
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

  it('COMMITTED stays so, and can be reversed', async () => {
    {
      await using tandem = await begun(both)
      await commit(tandem)
    }
    await asOlder('COMMITTED')
    await things(pair.destinationClient).insertOne({ _id: 'new', u: 'new', by: 'users' })
    await using tandem = await pair.startInstance()
    expect((await tandem.progress()).state).toBe('COMMITTED')
    expect(await tandem.post('reverse')).toEqual(accepted)
    await readyToCommit(tandem)
    expect(await tandem.post('commit')).toEqual(accepted)
    await committed(tandem)
    expect(await things(pair.sourceClient).findOne({ _id: 'new' })).not.toBeNull()
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  })
})

describe('a sync that a release before reversed, which announced nothing of it', () => {
  async function expectReversed(): Promise<void> {
    await things(pair.destinationClient).insertOne({ _id: 'meanwhile', u: 'meanwhile', by: 'users' })
    await using tandem = await pair.startInstance()
    await readyToCommit(tandem)
    expect((await tandem.progress()).directionMapping?.Source).toMatch(/^cluster1/)
    expect(await tandem.post('commit')).toEqual(accepted)
    await committed(tandem)
    expect(await things(pair.sourceClient).findOne({ _id: 'meanwhile' })).not.toBeNull()
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
    // Once it is reversed by this release it is announced.
    expect(await tandem.post('reverse')).toEqual(accepted)
    await readyToCommit(tandem)
    expect(await stored(pair.sourceClient).collection('moves').findOne()).toMatchObject({ generation: 2 })
  }

  it('goes on, and is reversed again', async () => {
    {
      await using tandem = await begun(both)
      await commit(tandem)
      expect(await tandem.post('reverse')).toEqual(accepted)
      await readyToCommit(tandem)
      await tandem.kill9()
    }
    await asOlder('reversed, RUNNING', pair.sourceClient)
    await stored().collection('moves').drop()
    await expectReversed()
  })

  it('goes on where the process died when the sync stood on both clusters', async () => {
    {
      await using tandem = await begun(both, { crashAt: 'reverseForget' })
      await commit(tandem)
      await tandem.post('reverse').catch((error) => {
        if (!(error instanceof TypeError)) throw error
      })
      await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
    }
    await asOlder('reversal died at reverseSwitch')
    await asOlder('reversal died at reverseDefinitions', pair.sourceClient)
    await stored().collection('moves').drop()
    await expectReversed()
  })
})

describe('a commit that failed in the release before', () => {
  const setOnDestination = (u: number) =>
    pair.destinationClient.db('app').command({
      update: 'things',
      updates: [{ q: { _id: 7 }, u: { $set: { u } } }],
      mayBypassWriteBlocking: true,
    })

  async function fails(): Promise<Tandem> {
    const tandem = await begun(both)
    await setOnDestination(-7)
    expect(await tandem.post('commit')).toEqual(accepted)
    await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'FAILED' })
    return tandem
  }

  it('is FAILED still, and resume commits', async () => {
    await (await fails()).kill9()
    await asOlder('FAILED with VerificationFailed')
    await setOnDestination(7)
    await using tandem = await pair.startInstance()
    expect(await tandem.progress()).toMatchObject({ state: 'FAILED', failure: { error: 'VerificationFailed' } })
    expect(await tandem.post('resume')).toEqual(accepted)
    await expectCommitted(tandem)
  })

  it('and was aborted there is over: the next command may be a rehearsal', async () => {
    {
      await using tandem = await fails()
      expect(await tandem.post('abort')).toEqual(accepted)
      await setOnDestination(7)
      await vi.waitFor(async () => expect(await stages().findOne()).toMatchObject({ value: 'replicating' }), patience)
      await readyToCommit(tandem)
    }
    await asOlder('FAILED, aborted and undone')
    expect(await writesBlocked(pair.sourceClient)).toBe(false)
    await write('meanwhile')
    await using tandem = await pair.startInstance()
    await readyToCommit(tandem)
    expect(await tandem.post('commit', { dryRun: true })).toEqual(accepted)
    await vi.waitFor(
      async () => expect(await tandem.progress()).toMatchObject({ lastRehearsal: { verdict: 'equal' } }),
      patience,
    )
    await commit(tandem)
  })
})

it('an abort that the release before acknowledged and had not undone is undone: users write on the source', async () => {
  {
    await using tandem = await begun(both)
    await using held = await holdTandem(pair.destinationClient, 'collMod', 'app.expiring')
    expect(await tandem.post('commit')).toEqual(accepted)
    await held.reached()
    expect(await tandem.post('abort')).toEqual(accepted)
    await tandem.kill9()
  }
  await asOlder('abort acknowledged, killed before undone')
  await pair.sourceClient.db('admin').command({ setUserWriteBlockMode: 1, global: true })
  await using tandem = await pair.startInstance()
  await vi.waitFor(async () => expect(await writesBlocked(pair.sourceClient)).toBe(false), patience)
  await readyToCommit(tandem)
  await write('after the abort')
  await commit(tandem)
})
