import type { Collection } from 'mongodb'
import { expect, it, vi } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { instanceOfVersion4 } from '../older/version-4.ts'
import { canCommit, committed } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { commitUntilItDies } from '../support/cutover.ts'
import { seedForCutover, type Thing, things } from '../support/cutover-data.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'
import { writesBlocked } from '../support/write-block-mode.ts'

/** When a process crashes between the last check of a commit and `canWrite`, no acknowledged write of a user is lost. */

const pair = pairedSets()
const patience = { timeout: 30_000, interval: 20 }

async function commitDiesAt(step: string, enableUserWriteBlocking: string): Promise<void> {
  await seedForCutover(pair.sourceClient)
  await using tandem = await pair.startInstance({ faults: { crashAt: step } })
  await startSync(tandem, { enableUserWriteBlocking })
  await canCommit(tandem)
  await commitUntilItDies(tandem)
  await vi.waitFor(() => expect(tandem.isRunning()).toBe(false), patience)
}

/** Rewrites the stored state to that of an earlier release, which stored no decision, after a crash right after the unblocking. */
async function asEarlierRelease(): Promise<void> {
  const stored = pair.destinationClient.db(metadataDatabase)
  const stages = stored.collection<{ _id: string; context?: { commitTimestamp: string } }>('stages')
  const { commitTimestamp: commitPoint } = (await stages.findOne())?.context ?? {}
  const phase = { schemaVersion: 1, initialised: true, hashed: true }
  const attempt = { attempt: 1, step: 'verified', commitPoint, failure: null, abandoned: false, heldBack: false }
  await stages.replaceOne({}, { ...phase, ...attempt } as object)
  const instances = stored.collection<{ _id: string; snapshot: string }>('instances')
  for await (const { _id, snapshot } of instances.find()) {
    const {
      abortsBefore: _aborts,
      commitUntil: _until,
      dryRun: _dry,
      commitAborted: _aborted,
      attempt: _attempt,
      decided: _decided,
      ...context
    } = JSON.parse(instanceOfVersion4({ snapshot })['snapshot'])
    await instances.updateOne({ _id }, { $set: { snapshot: JSON.stringify(context) } })
  }
}

it.each(['this release', 'the earlier release'])(
  'after a crash of %s right after the unblocking, writes of users on the destination are kept and never refused',
  async (release) => {
    await commitDiesAt('unblocked', 'sourceAndDestination')
    if (release === 'the earlier release') await asEarlierRelease()
    expect(await writesBlocked(pair.destinationClient)).toBe(false)
    const userThings = things(pair.destinationClient)
    await userThings.insertOne({ _id: 'new', u: 'new', by: 'users' })
    await userThings.updateOne({ _id: 5 }, { $set: { by: 'users' } })
    await userThings.deleteOne({ _id: 6 })
    await using tandem = await pair.startInstance()
    const users = keepInserting(userThings)
    const { canWrite } = await committed(tandem).finally(users.stop)
    expect(canWrite).toBe(true)
    expect(users.refused).toEqual([])
    expect(await userThings.countDocuments({ _id: /^user / })).toBe(users.acknowledged)
    expect(await userThings.findOne({ _id: 'new' })).toEqual({ _id: 'new', u: 'new', by: 'users' })
    expect(await userThings.findOne({ _id: 5 })).toEqual({ _id: 5, u: 5, by: 'users' })
    expect(await userThings.findOne({ _id: 6 })).toBeNull()
    // Without the writes of users, both clusters are equal.
    await userThings.deleteMany({ _id: /^(new$|user )/ })
    await userThings.updateOne({ _id: 5 }, { $set: { by: 'seed' } })
    await userThings.insertOne({ _id: 6, u: 6, by: 'seed' })
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  },
)

it('after a crash before the unblocking of the destination, a write on the source is migrated, or named in the warnings', async () => {
  await commitDiesAt('unblock', 'destinationOnly')
  expect(await writesBlocked(pair.destinationClient)).toBe(true)
  await things(pair.sourceClient).insertOne({ _id: 7001, u: 7001, by: 'the application' })
  await using tandem = await pair.startInstance()
  await committed(tandem)
  if (await things(pair.destinationClient).findOne({ _id: 7001 })) {
    expect((await compareBoth(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  } else {
    await vi.waitFor(async () => {
      expect((await tandem.progress()).warnings).toContainEqual(expect.stringMatching(/app\.things.*"7001"/))
    }, patience)
  }
})

/** Inserts one document after another until `stop` is called. */
function keepInserting(collection: Collection<Thing>) {
  const stopped = new AbortController()
  const users = { refused: [] as unknown[], acknowledged: 0, stop: async (): Promise<void> => {} }
  const inserting = (async () => {
    for (let number = 0; !stopped.signal.aborted; number++) {
      const _id = `user ${number}`
      await collection.insertOne({ _id, u: _id }).then(
        () => {
          users.acknowledged += 1
        },
        (error) => users.refused.push(error),
      )
    }
  })()
  users.stop = async () => {
    stopped.abort()
    await inserting
  }
  return users
}
