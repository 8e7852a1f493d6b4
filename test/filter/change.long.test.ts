import { expect, test } from 'vitest'
import { randomFilter } from '../faults/random-filter.ts'
import type { Selects } from '../support/compare.ts'
import { compareBoth } from '../support/compare-both.ts'
import { expectAccepted, startInstances } from '../support/instances.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { Random } from '../support/random.ts'
import { seedData } from '../support/seed-data.ts'
import type { Tandem } from '../support/tandem-process.ts'
import { selectedNames, untilApplied } from '../support/until-applied.ts'
import { createWorkload } from '../support/workload.ts'

/**
 * Random filters replace each other while the random workload writes to all collections, with DDL, and two instances share the sync.
 * The workload renames collections out of and into the filters.
 */

const pair = pairedSets()
const seeds = (process.env['TANDEM_SEED'] ?? '1,2').split(',').map(Number)

test.each(seeds)('seed %i: the collections that the last filter selects are equal', async (seed) => {
  const { source, destination, destinationClient } = pair
  const random = new Random(`change filter ${seed}`)
  const filters = [0, 1, 2, 3].map((at) => randomFilter(seed * 100 + at * 13))
  const selects = filters.at(-1)?.selects as Selects
  await seedData(source.uri, seed, 0.05)
  const written = { ddl: true, ddlShare: 0.2, transactions: true, opsPerSecond: 30 }
  const workload = createWorkload({ uri: source.uri, seed, ...written })
  await workload.runSteps(20)
  const instances = await startInstances(['a', 'b'], { cluster0: source.uri, cluster1: destination.uri })
  const stopped = new AbortController()
  try {
    const [first, ...later] = filters
    const start = { source: 'cluster0', destination: 'cluster1', existingData: 'converge', ...first?.start }
    expectAccepted(await instances.post('start', start))
    const writing = workload.run(stopped.signal)
    writing.catch(() => {}) // the code that awaits it handles the error
    for (const { start: filter } of later) {
      // Some filters replace the previous one while tandem is still planning or copying its collections.
      if (random.chance(0.7)) await instances.allReach(({ canCommit }) => canCommit, 'canCommit', 120)
      const [one] = random.shuffle([...instances.members.values()]) as [Tandem]
      const body = { ...filter, dropExcluded: random.chance(0.4) }
      await expect.poll(async () => (await one.post('filter', body)).status, { timeout: 30_000 }).toBe(200)
    }
    await instances.allReach(({ canCommit }) => canCommit, 'canCommit', 120)
    stopped.abort()
    await writing
    // A commit is aborted if it meets a rename out of or into the filter.
    await untilApplied(pair, selectedNames(selects))
    await instances.allReach(({ canCommit }) => canCommit, 'canCommit', 60)
    expectAccepted(await instances.post('commit'))
    await instances.allReach(({ state }) => state === 'COMMITTED', 'COMMITTED', 120)
  } finally {
    stopped.abort()
    await instances.stop()
  }
  const { differences, documents } = await compareBoth(source.uri, destination.uri, { selects })
  expect(differences).toEqual([])
  expect(documents).toBeGreaterThan(0)
  // The renames add convergences to those of the filters.
  expect(await convergencesOf(destinationClient)).toBeGreaterThanOrEqual(3)
})
