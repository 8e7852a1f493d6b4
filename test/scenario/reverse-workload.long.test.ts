import { expect, it } from 'vitest'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { ReversiblePair, reversible } from '../support/reversible-pair.ts'
import { seedData } from '../support/seed-data.ts'
import { startSync } from '../support/tandem-process.ts'
import { createWorkload } from '../support/workload.ts'

/** A sync is committed and reversed again and again under a random workload. */

const pair = new ReversiblePair({ oplogSizeMB: 1024, extraArgs: ['--setParameter', 'ttlMonitorSleepSecs=1'] })

it.each([701, 702, 703])(
  'facts 2.5: reverse succeeds any number of times with a random workload in each cycle: seed %i',
  async (seed) => {
    await seedData(pair.left.uri, seed, 0.1)
    await using tandem = await pair.startTandem()
    await startSync(tandem, reversible)
    for (const [cycle, uri] of [pair.left.uri, pair.right.uri, pair.left.uri, pair.right.uri].entries()) {
      const workload = createWorkload({ uri, seed: `${seed} leg ${cycle}`, ddl: true, transactions: true })
      if (cycle > 0) {
        await workload.runSteps(60)
        expect(await tandem.post('reverse')).toEqual(accepted)
      }
      await workload.runSteps(80)
      await canCommit(tandem)
      await workload.runSteps(20)
      await commit(tandem)
      await pair.expectEqual()
    }
  },
)
