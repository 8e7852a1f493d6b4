import { expect, it } from 'vitest'
import { accepted, canCommit, committed } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { seedForCutover } from '../support/cutover-data.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/**
 * A commit runs between idle clusters. By default a primary writes a no-op to its oplog every ten seconds
 * (`periodicNoopIntervalSecs`, at most 10), which advances its cluster time and the majority commit point. In this test the
 * primaries write no periodic no-ops, so a step that relies on one never ends.
 */

const quiet = { members: 3, extraArgs: ['--setParameter', 'writePeriodicNoops=false'] }
const pair = pairedSets({ source: quiet, destination: quiet })

it('neither a rehearsal nor a commit relies on the periodic no-ops of the server', async () => {
  await seedForCutover(pair.sourceClient)
  await using tandem = await pair.startInstance()
  await startSync(tandem, {
    verification: { enabled: true },
    reversible: true,
    enableUserWriteBlocking: 'sourceAndDestination',
  })
  await canCommit(tandem)
  expect(await tandem.post('commit', { dryRun: true })).toEqual(accepted)
  await tandem.waitFor(({ lastRehearsal, state }) => state === 'RUNNING' && lastRehearsal?.verdict === 'equal', {
    timeoutSeconds: 60,
    what: 'rehearsed',
  })
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  await committed(tandem)
  expect((await compareClusters(pair.source.uri, pair.destination.uri)).differences).toEqual([])
})
