import { expect, it } from 'vitest'
import { commit } from '../support/commits.ts'
import { ReversiblePair, reverse, reversible, things } from '../support/reversible-pair.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

const pair = new ReversiblePair({ auth: true })

/** The roles that mongosync documents for any number of reversals, without `dbAdminAnyDatabase`. */
const roles = ['backup', 'clusterManager', 'clusterMonitor', 'readWriteAnyDatabase', 'restore']

it('5.4: the documented roles are enough to reverse a sync twice', async () => {
  await things(pair.leftClient).createIndexes([
    { key: { u: 1 }, name: 'u', unique: true },
    { key: { at: 1 }, name: 'at', expireAfterSeconds: 1000 },
  ])
  await pair.leftClient.db('app').createCollection('capped', { capped: true, size: 100_000, max: 3 })
  await things(pair.leftClient).insertOne({ _id: 1, u: 1 })
  await using tandem = await startTandem({
    cluster0: await pair.left.createUser('tandem', 'secret', roles),
    cluster1: await pair.right.createUser('tandem', 'secret', roles),
  })
  await startSync(tandem, reversible)
  await commit(tandem)
  for (const [cycle, client] of [pair.rightClient, pair.leftClient].entries()) {
    await things(client).insertOne({ _id: `cycle ${cycle}`, u: cycle + 2 })
    await client.db('app').createCollection(`of cycle ${cycle}`)
    await reverse(tandem)
    await things(client).insertOne({ _id: `late ${cycle}`, u: cycle + 12 })
    await commit(tandem)
    await pair.expectEqual()
  }
  expect(await things(pair.leftClient).countDocuments()).toBe(5)
})

it('5.4: a reversible start with a user who may not write to the source is refused with MissingPrivileges', async () => {
  await things(pair.leftClient).insertOne({ _id: 1 })
  const reading = ['backup', 'clusterManager', 'clusterMonitor', 'readAnyDatabase']
  await using tandem = await startTandem({
    cluster0: await pair.left.createUser('reader', 'secret', reading),
    cluster1: await pair.right.createUser('writer', 'secret', roles),
  })
  const start = { source: 'cluster0', destination: 'cluster1', ...reversible }
  await expect.poll(() => tandem.progress().catch(() => null), { timeout: 30_000 }).toMatchObject({ state: 'IDLE' })
  expect(await tandem.post('start', start)).toMatchObject({
    status: 422,
    body: { error: 'MissingPrivileges', errorDescription: expect.stringMatching(/source.*bypassWriteBlockingMode/) },
  })
})
