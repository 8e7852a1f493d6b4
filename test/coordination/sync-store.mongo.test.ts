import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest'
import { freshSync } from '../../machines/sync-context.ts'
import { pathOf } from '../../machines/sync-view.ts'
import { reversedSync } from '../../src/coordination/stored-sync.ts'
import { SyncStore } from '../../src/coordination/sync-store.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { testCluster, testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'
import { syncStore } from './peer-members.ts'

/** Several processes send events to the stored snapshot of the sync machine at the same time. */

const one = oneSet()
const stages = () => one.client.db(metadataDatabase).collection<{ _id: string; context?: object }>('stages')
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
})

const request = { ...plainCommit, at: 1 }
const worked = { term: 1, attempt: 1 }

async function replicating() {
  const store = syncStore(one)
  await store.send({ type: 'coordinator.elected', term: 1 })
  await store.send({ type: 'initialised', ...worked, attempt: 0 })
  return store
}

async function deciding() {
  const store = await replicating()
  await store.send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
  await store.send({ type: 'commit.gathered', ...worked })
  await store.send({ type: 'commit.timestampTaken', commitTimestamp: '7', ...worked })
  for (const type of ['commit.applied', 'commit.prepared', 'commit.verified'] as const)
    await store.send({ type, ...worked })
  return store
}

describe('the stored sync', () => {
  it('begins without a stored document, and is read back as it was stored', async () => {
    expect(pathOf(await syncStore(one).load())).toBe('initialising')
    expect(await stages().countDocuments()).toBe(0)
    const store = await deciding()
    const again = await syncStore(one).load()
    expect([pathOf(again), again.context]).toEqual(['committing.deciding', store.latest.context])
    expect(await stages().findOne()).toMatchObject({ schemaVersion: 6, revision: 8, value: { committing: 'deciding' } })
  })

  it('reads version 2, which stores no convergences, as a sync without convergences, and replaces it with the first event', async () => {
    const { convergences: _none, scope: _scope, startTime: _time, ...context } = (await syncStore(one).load()).context
    const stored = { _id: 'sync', schemaVersion: 2, revision: 4, value: 'replicating', context }
    await stages().insertOne(stored as never)
    const store = syncStore(one)
    expect((await store.load()).context).toMatchObject({ convergences: 0, startTime: null })
    const after = await store.send({ type: 'convergence.requested', scope: 'all', convergencesBefore: 0 })
    expect(pathOf(after)).toBe('replanning')
    expect(await stages().findOne()).toMatchObject({ schemaVersion: 6, revision: 5, value: 'replanning' })
  })

  it('reads version 3, which stores only the filters of the start', async () => {
    const { filters: _none, filterChange: _change, ...context } = (await syncStore(one).load()).context
    const stored = { _id: 'sync', schemaVersion: 3, revision: 4, value: 'replicating', context }
    await stages().insertOne(stored as never)
    const store = syncStore(one)
    expect((await store.load()).context).toMatchObject({ filters: null, filterChange: null })
    const before = { includeNamespaces: null, excludeNamespaces: null }
    const filters = { ...before, includeNamespaces: [{ databaseRegex: { pattern: '^a$', options: 'i' } }] }
    const filter = { filters, before, dropExcluded: true }
    await store.send({ type: 'convergence.requested', scope: [], convergencesBefore: 0, filter })
    const again = await syncStore(one).load()
    expect([pathOf(again), again.context]).toEqual(['replanning', store.latest.context])
    expect(again.context).toMatchObject({ filters, filterChange: { before: [before], dropExcluded: true } })
  })

  it('begins for each of several processes that store the same initial state at the same moment', async () => {
    const clusters = Array.from({ length: 8 }, (_, at) => testCluster(one.set.uri, `begins-${at}`))
    onTestFinished(async () => {
      await Promise.all(clusters.map((cluster) => cluster.close()))
    })
    for (let round = 0; round < 100; round += 1) {
      const stores = clusters.map((cluster) => new SyncStore(cluster, testContext(), 1))
      expect(await Promise.all(stores.map((store) => store.begin(reversedSync())))).toEqual(stores.map(() => true))
      await stages().deleteMany({})
    }
  })

  it('accepts either an abort or a decision, however many processes send both at the same time', async () => {
    const outcomes = new Set<string>()
    for (let round = 0; round < 12; round++) {
      await stages().deleteMany({})
      await deciding()
      const [deciders, aborters] = [
        [syncStore(one), syncStore(one)],
        [syncStore(one), syncStore(one)],
      ]
      const aborted = { type: 'commit.aborted', abortsBefore: 0, reason: null, rehearsal: null } as const
      const decide = () => deciders.map((each) => each.send({ type: 'commit.decided', quietUntil: '8', ...worked }))
      const abort = () => aborters.map((each) => each.send(aborted))
      const all = await Promise.all(round % 2 ? [...decide(), ...abort()] : [...abort(), ...decide()])
      const ends = new Set(all.map(pathOf))
      expect(ends.size).toBe(1)
      const [end] = [...ends] as [string]
      outcomes.add(end)
      const { aborts, quietUntil } = (await syncStore(one).load()).context
      expect([aborts, quietUntil]).toEqual(end === 'undoing' ? [1, null] : [0, '8'])
    }
    for (const outcome of outcomes) expect(['undoing', 'decided.opening']).toContain(outcome)
  })

  const former = { hashed: true, commitPoint: '7' }
  const contextOf4 = async () => {
    const { initiallyVerified: _verified, commitTimestamp: _timestamp, ...same } = (await syncStore(one).load()).context
    return { ...same, term: 1, attempt: 1, ...former, request }
  }
  it('reads version 5, and takes its filters for those of a plan that has begun', async () => {
    const all = { includeNamespaces: null, excludeNamespaces: null }
    const filters = { ...all, includeNamespaces: [{ database: 'a' }] }
    const filterChange = { before: [all], dropExcluded: false }
    const context = { ...(await syncStore(one).load()).context, term: 1, convergences: 1, filters, filterChange }
    const stored = { _id: 'sync', schemaVersion: 5, revision: 4, value: 'replanning', context }
    await stages().insertOne(stored as never)
    const store = syncStore(one)
    expect((await store.load()).context).toMatchObject({ filters, filterChange })
    const filter = { filters: all, before: filters, dropExcluded: true }
    await store.send({ type: 'convergence.requested', scope: [], convergencesBefore: 1, filter })
    const expected = { before: [all, filters], dropExcluded: true, begun: false }
    expect((await syncStore(one).load()).context.filterChange).toEqual(expected)
    expect(await stages().findOne()).toMatchObject({ schemaVersion: 6, revision: 5 })
  })

  it.each([
    ['committing.takingTimestamp', { committing: 'takingPoint' }],
    ['committing.applying', { committing: 'applying' }],
    ['reversing.preparingDestination', { reversing: 'adapting' }],
  ])('reads %s of version 4, which has other names, and replaces it with the first event', async (state, value) => {
    const context = await contextOf4()
    await stages().insertOne({ _id: 'sync', schemaVersion: 4, revision: 4, catalogue: 3, value, context } as never)
    const store = syncStore(one)
    const read = await store.load()
    expect(pathOf(read)).toBe(state)
    expect(read.context).toMatchObject({ initiallyVerified: true, commitTimestamp: '7', term: 1, attempt: 1 })
    expect(Object.keys(read.context).sort()).toEqual(Object.keys(freshSync).sort())
    // This write changes the version of the document, but not its snapshot.
    await store.catalogChanged()
    expect(await stages().findOne()).toMatchObject({ schemaVersion: 6, value, context: former })
    expect(pathOf(await syncStore(one).load())).toBe(state)
    expect(await store.catalogChanges()).toBe(4)
    // An event leaves nothing of the earlier form.
    await store.send({ type: 'coordinator.elected', term: 2 })
    const stored = await stages().findOne()
    expect(stored).toMatchObject({ schemaVersion: 6, revision: 5, context: { ...read.context, term: 2 } })
    expect(Object.keys(stored?.context ?? {}).sort()).toEqual(Object.keys(freshSync).sort())
    expect(pathOf(await syncStore(one).load())).toBe(state)
  })

  it('is created once when several processes send the first event', async () => {
    const elected = { type: 'coordinator.elected', term: 1 } as const
    const all = await Promise.all([1, 2, 3, 4].map(() => syncStore(one).send(elected)))
    expect(all.map(({ context }) => context.term)).toEqual([1, 1, 1, 1])
    expect(await stages().countDocuments()).toBe(1)
    expect(await stages().findOne()).toMatchObject({ revision: 1 })
  })

  it('is not changed by a delayed store of an earlier coordinator', async () => {
    const write = vi.spyOn(one.cluster, 'write')
    onTestFinished(() => write.mockRestore())
    await replicating()
    const delayed = [...write.mock.calls]
    const elected = { type: 'coordinator.elected', term: 2 } as const
    await syncStore(one).send(elected)
    const stored = await stages().findOne()
    expect(delayed.map(([, command]) => command['findAndModify'])).toEqual(['stages', 'stages'])
    for (const [database, command] of delayed) {
      // The server answers a message that creates the document with a duplicate key.
      await one.cluster.write(database, command).catch((error) => expect(error).toMatchObject({ code: 11000 }))
      expect(await stages().findOne()).toEqual(stored)
    }
    expect(stored).toMatchObject({ revision: 3, context: { term: 2 } })
  })

  it('is begun once on the destination of a reversal, and not again after it has received an event', async () => {
    const store = syncStore(one)
    const first = await store.begin(reversedSync())
    const repeated = await store.begin(reversedSync())
    await syncStore(one).send({ type: 'coordinator.elected', term: 1 })
    const stored = await stages().findOne()
    expect(stored).toMatchObject({
      schemaVersion: 6,
      revision: 1,
      value: { reversing: 'preparingDestination' },
      context: { term: 1 },
    })
    const late = await store.begin(reversedSync())
    expect(await stages().findOne()).toEqual(stored)
    expect([first, repeated, late]).toEqual([true, true, false])
  })

  it('keeps the number of catalog changes in the same document', async () => {
    const store = await replicating()
    await store.catalogChanged()
    await store.send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
    await store.catalogChanged()
    expect(await syncStore(one).catalogChanges()).toBe(2)
    expect(pathOf(await syncStore(one).load())).toBe('committing.gathering')
  })

  it('stores an event in one round trip when the known state is current', async () => {
    const store = await replicating()
    const read = vi.spyOn(one.cluster, 'read')
    onTestFinished(() => read.mockRestore())
    await store.send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
    await store.send({ type: 'commit.gathered', ...worked })
    expect(read).not.toHaveBeenCalled()
    expect(pathOf(await syncStore(one).load())).toBe('committing.takingTimestamp')
  })

  it('does not apply an event that the known state accepts if the stored state does not accept it', async () => {
    const store = await replicating()
    await store.send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
    const aborted = { type: 'commit.aborted', abortsBefore: 0, reason: null, rehearsal: null } as const
    await syncStore(one).send(aborted)
    expect(pathOf(store.latest)).toBe('committing.gathering')
    expect(pathOf(await store.send({ type: 'commit.gathered', ...worked }))).toBe('undoing')
    expect(pathOf(await syncStore(one).load())).toBe('undoing')
  })

  it('applies an event that the stored state accepts, even if the outdated known state does not accept it', async () => {
    const store = await replicating()
    await syncStore(one).send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
    expect(pathOf(store.latest)).toBe('replicating')
    expect(pathOf(await store.send({ type: 'commit.gathered', ...worked }))).toBe('committing.takingTimestamp')
  })

  it('shows the state that was stored last, also when the reply to an earlier read arrives later', async () => {
    const store = await replicating()
    const reading = store.load()
    const sent = store.send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
    await Promise.all([reading, sent])
    expect(pathOf(store.latest)).toBe('committing.gathering')
    expect(store.view).toMatchObject({ revision: 3, attempt: 1, state: 'committing.gathering' })
  })
})
