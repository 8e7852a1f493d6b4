import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { type CycleOptions, SoakRun } from '../faults/soak-run.ts'

/** A short sample of `npm run soak`: two instances sync and reverse under the random workload, with a fault in each direction. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair({ oplogSizeMB: 256, proxied: true })
})
afterAll(() => pair?.[Symbol.asyncDispose]())

const cycles: CycleOptions[] = [
  { seconds: 3, paces: [8], faults: ['stepdown of the destination'] },
  { seconds: 3, paces: [8], faults: ['kill'] },
]

it('a sync and its reversal by two instances, with faults in each direction, leave no difference', async () => {
  const run = new SoakRun({ pair, seed: 'sample', instances: 2 })
  let failed = true
  try {
    for (const [at, options] of cycles.entries()) {
      const report = await run.cycle(options)
      expect(report).toMatchObject({ cycle: at + 1, problems: [] })
      expect(Object.keys(report.faults)).not.toEqual([])
      expect(report.operations).toBeGreaterThan(0)
      expect(report.processes.filter(({ whole }) => whole).map(({ id }) => id)).toContain('a')
    }
    failed = false
  } finally {
    await run.stop(failed)
  }
})
