import { expect, it } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/**
 * A script for mongosync 1.20 or later does not send `enableUserWriteBlocking` and expects that both clusters are blocked
 * (docs/from-mongosync.md).
 */

const pair = pairedSets()
const leftOut = expect.stringMatching(/^start left out enableUserWriteBlocking, so only the destination is blocked/)

it('after a start without enableUserWriteBlocking, progress shows a warning until the destination accepts writes', async () => {
  await using tandem = await pair.startInstance()
  await startSync(tandem)
  expect((await tandem.progress()).warnings).toEqual([leftOut])
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  expect((await tandem.progress()).warnings).toEqual([leftOut])
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  expect(await tandem.progress()).not.toHaveProperty('warnings')
})

it.each([{ enableUserWriteBlocking: 'destinationOnly' }, { includeNamespaces: [{ database: 'app' }] }])(
  'progress shows no warning after a start for which mongosync 1.20 blocks the same clusters: %j',
  async (request) => {
    await using tandem = await pair.startInstance()
    await startSync(tandem, request)
    expect(await tandem.progress()).not.toHaveProperty('warnings')
  },
)
