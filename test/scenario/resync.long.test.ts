import { expect, test } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { corruptRows, seedRows } from '../support/rows.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

/** Several instances make a single collection equal to the source again, under the random workload. */

const pair = pairedSets()

test('under a workload, two instances carry out a resync that one of them receives, and verify its result', async () => {
  const name = 'resync under a workload'
  await seedData(pair.source.uri, name, 0.2)
  await seedRows(pair.sourceClient, ['things'])
  await using several = await pair.startInstances('a', 'b')
  for (const one of several.members.values()) await startSync(one, { enableUserWriteBlocking: 'none' })
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  const workload = createWorkload({ uri: pair.source.uri, seed: name, ddl: true, transactions: true, opsPerSecond: 20 })
  const ended = new AbortController()
  const writing = workload.run(ended.signal)
  await corruptRows(pair.destinationClient, 'things')
  const [first, second] = [...several.members.values()] as [Tandem, Tandem]
  expect(await first.post('resync', { namespaces: [{ database: 'app', collection: 'things' }] })).toMatchObject({
    status: 200,
  })
  await second.waitFor((progress) => !progress.canCommit, { timeoutSeconds: 30, what: 'resync' })
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  ended.abort()
  await writing
  await several.allReach((progress) => progress.canCommit, 'canCommit', 120)
  expectAccepted(await several.post('commit'))
  await several.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
})
