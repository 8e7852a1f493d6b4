import { expect, it } from 'vitest'
import { accepted } from '../support/commits.ts'
import { pairedSets } from '../support/paired-sets.ts'

/**
 * A script for mongosync 1.20 or later does not send `enableUserWriteBlocking` and expects that both clusters are blocked
 * (docs/from-mongosync.md).
 */

const pair = pairedSets()
const leftOut = expect.stringMatching(/^start left out enableUserWriteBlocking, so only the destination is blocked/)

it('the answer to a start without enableUserWriteBlocking has a warning, which progress shows until the destination accepts writes', async () => {
  await using tandem = await pair.startInstance()
  const answer = await tandem.post('start', { source: 'cluster0', destination: 'cluster1' })
  expect(answer).toEqual({ status: 200, body: { success: true, warnings: [leftOut] } })
  expect((await tandem.progress()).warnings).toEqual([leftOut])
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'ready to commit' })
  expect((await tandem.progress()).warnings).toEqual([leftOut])
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  expect(await tandem.progress()).not.toHaveProperty('warnings')
})

it.each([{ enableUserWriteBlocking: 'destinationOnly' }, { includeNamespaces: [{ database: 'app' }] }])(
  'neither the answer nor progress has a warning after a start for which mongosync 1.20 blocks the same clusters: %j',
  async (request) => {
    await using tandem = await pair.startInstance()
    const answer = await tandem.post('start', { source: 'cluster0', destination: 'cluster1', ...request })
    expect(answer).toEqual(accepted)
    expect(await tandem.progress()).not.toHaveProperty('warnings')
  },
)
