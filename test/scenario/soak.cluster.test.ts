import { afterAll, beforeAll, expect, it } from 'vitest'
import { startReplicaSet } from '../support/replica-set.ts'
import type { Pair } from '../support/scenario.ts'
import { type LegOptions, SoakRun } from '../support/soak-run.ts'

/** A short sample of `npm run soak`: two instances go there and back under the random workload, with a fault on either way. */

let pair: Pair
beforeAll(async () => {
  const options = { oplogSizeMB: 256, proxied: true }
  const [source, destination] = await Promise.all([startReplicaSet(options), startReplicaSet(options)])
  pair = { source, destination }
})
afterAll(async () => {
  await Promise.all([pair.source.stop(), pair.destination.stop()])
})

const legs: LegOptions[] = [
  { seconds: 3, paces: [8], faults: ['stepdown of the destination'] },
  { seconds: 3, paces: [8], faults: ['kill'] },
]

it('a sync that goes there and back by two instances, with faults on either way, leaves nothing different', async () => {
  const run = new SoakRun({ pair, seed: 'sample', instances: 2 })
  let failed = true
  try {
    for (const [at, options] of legs.entries()) {
      const report = await run.leg(options)
      expect(report).toMatchObject({ leg: at + 1, problems: [] })
      expect(Object.keys(report.faults)).not.toEqual([])
      expect(report.operations).toBeGreaterThan(0)
      expect(report.processes.filter(({ whole }) => whole).map(({ id }) => id)).toContain('a')
    }
    failed = false
  } finally {
    await run.stop(failed)
  }
})
