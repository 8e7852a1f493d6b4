import { expect, test } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { type Any, changeEachKind, seedEachKind } from '../support/changes-of-each-kind.ts'
import { commitEqual } from '../support/commit-equal.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted } from '../support/instances.ts'
import { convergencesOf, failedForOplog, loseHistory, smallOplog } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** A sync is resumed after the source's oplog has lost its position. The sync converges, and both clusters become equal. */

const pair = pairedSets({ source: smallOplog(6) })

async function pausedThenLost(running: Tandem): Promise<void> {
  await running.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  expect(await running.post('pause')).toMatchObject({ status: 200 })
  await changeEachKind(pair.sourceClient)
  await loseHistory(pair.sourceClient)
}

test.each([true, false])(
  'README: a resume from PAUSED after the oplog has rolled over converges everything that has changed meanwhile (verification: %s)',
  async (enabled) => {
    await seedEachKind(pair.sourceClient)
    await using tandem = await pair.startInstance()
    await startSync(tandem, { verification: { enabled } })
    await pausedThenLost(tandem)
    const destination = pair.destinationClient.db('app')
    expect(await destination.collection('dropped').countDocuments()).toBe(200)

    expect(await tandem.post('resume')).toMatchObject({ status: 200 })
    const { state } = await tandem.progress()
    expect(state).toBe('RUNNING')
    await pair.sourceClient.db('app').collection<Any>('changed').deleteOne({ _id: 1_000 })
    await commitEqual(tandem, pair)
    expect(await convergencesOf(pair.destinationClient)).toBe(1)
  },
)

test('when a commit fails because the oplog has rolled over, resume is refused until an abort, and then converges', async () => {
  await seedEachKind(pair.sourceClient)
  await using tandem = await pair.startInstance()
  await startSync(tandem, { verification: { enabled: false } })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  const admin = pair.sourceClient.db('admin')
  // While this fail point is on, tandem cannot take the commit timestamp.
  await admin.command({
    configureFailPoint: 'failCommand',
    mode: 'alwaysOn',
    data: { failCommands: ['appendOplogNote'], errorCode: 91 },
  })
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'COMMITTING', { timeoutSeconds: 30, what: 'COMMITTING' })
  process.kill(tandem.pid, 'SIGSTOP')
  try {
    await changeEachKind(pair.sourceClient)
    await loseHistory(pair.sourceClient)
  } finally {
    process.kill(tandem.pid, 'SIGCONT')
  }
  await failedForOplog(tandem)
  await admin.command({ configureFailPoint: 'failCommand', mode: 'off' })

  const refused = await tandem.post('resume')
  expect(refused).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  expect(refused.body.errorDescription).toMatch(/abort/)
  expect(await tandem.post('abort')).toMatchObject({ status: 200 })
  await failedForOplog(tandem)
  expect(await tandem.post('resume')).toMatchObject({ status: 200 })
  await commitEqual(tandem, pair)
})

test('README: when two instances are resumed after the oplog has rolled over, only one of them requests the convergence', async () => {
  await seedEachKind(pair.sourceClient)
  await using several = await pair.startInstances('a', 'b')
  for (const one of several.members.values()) await startSync(one, {})
  await several.allReach(({ canCommit }) => canCommit, 'canCommit')
  expectAccepted(await several.post('pause'))
  await changeEachKind(pair.sourceClient)
  await loseHistory(pair.sourceClient)
  const [first, second] = [...several.members.values()] as [Tandem, Tandem]

  // The second instance is still PAUSED, and does not prevent the convergence.
  expect(await first.post('resume')).toMatchObject({ status: 200 })
  await first.waitFor(({ info }) => info === 'collection copy', { timeoutSeconds: 30, what: 'converging' })
  const stages = pair.destinationClient.db(metadataDatabase).collection('stages')
  await expect.poll(async () => (await stages.findOne())?.['value'], { timeout: 30_000 }).toBe('replicating')
  expect(await second.post('resume')).toMatchObject({ status: 200 })
  await several.allReach(({ canCommit }) => canCommit, 'canCommit', 120)
  expectAccepted(await several.post('commit'))
  await several.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED')
  expect(await convergencesOf(pair.destinationClient)).toBe(1)
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
})
