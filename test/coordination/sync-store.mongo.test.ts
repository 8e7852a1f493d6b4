import { beforeEach, describe, expect, it } from 'vitest'
import { pathOf } from '../../machines/sync-view.ts'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { oneSet } from '../mongo/one-set.ts'
import { syncStore } from './peer-members.ts'

/** The sync machine's snapshot, where several processes send it events at once. */

const one = oneSet()
const stages = () => one.client.db('tandem_internal').collection<{ _id: string }>('stages')
beforeEach(async () => {
  await one.client.db('tandem_internal').dropDatabase()
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
  await store.send({ type: 'commit.pointTaken', commitPoint: '7', ...worked })
  for (const type of ['commit.applied', 'commit.prepared', 'commit.verified'] as const)
    await store.send({ type, ...worked })
  return store
}

describe('the stored sync', () => {
  it('begins with nothing stored, and is read back as it was stored', async () => {
    expect(pathOf(await syncStore(one).load())).toBe('initialising')
    expect(await stages().countDocuments()).toBe(0)
    const store = await deciding()
    const again = await syncStore(one).load()
    expect([pathOf(again), again.context]).toEqual(['committing.deciding', store.latest.context])
    expect(await stages().findOne()).toMatchObject({ schemaVersion: 2, revision: 8, value: { committing: 'deciding' } })
  })

  it('takes exactly one of an abort and a decision, however often and by whomever they are sent at once', async () => {
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

  it('is created once, by whoever is first', async () => {
    const elected = { type: 'coordinator.elected', term: 1 } as const
    const all = await Promise.all([1, 2, 3, 4].map(() => syncStore(one).send(elected)))
    expect(all.map(({ context }) => context.term)).toEqual([1, 1, 1, 1])
    expect(await stages().countDocuments()).toBe(1)
    expect(await stages().findOne()).toMatchObject({ revision: 1 })
  })

  it('keeps the number of catalogue changes beside it', async () => {
    const store = await replicating()
    await store.catalogueChanged()
    await store.send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
    await store.catalogueChanged()
    expect(await syncStore(one).catalogueChanges()).toBe(2)
    expect(pathOf(await syncStore(one).load())).toBe('committing.gathering')
  })

  it('shows what was stored last, also when an earlier read arrives later', async () => {
    const store = await replicating()
    const reading = store.load()
    const sent = store.send({ type: 'commit.requested', request, replaces: null, abortsBefore: 0 })
    await Promise.all([reading, sent])
    expect(pathOf(store.latest)).toBe('committing.gathering')
    expect(store.view).toMatchObject({ revision: 3, attempt: 1, state: 'committing.gathering' })
  })
})
