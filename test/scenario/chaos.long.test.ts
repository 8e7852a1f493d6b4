import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type Pair, type PairOptions, startPair } from '../faults/clusters.ts'
import { cuts, stepDowns } from '../faults/server-faults.ts'
import { kills } from '../faults/stepwise.ts'
import { migrateUnderWorkload } from '../faults/under-workload.ts'
import { type KillMoment, runVerifierKill } from '../faults/verifier-kill.ts'
import { slowness } from '../support/slowness.ts'

/** Runs a fixed sample of the cases of `npm run chaos`. A failed test names the seed with which to replay it there. */

const equalAndUnrepeated = { problems: [], segmentsReadAgain: 0 }
const oplogSizeMB = 1_024

/** Starts one pair of clusters for the tests of a `describe` block. */
function pairFor(options: PairOptions): { pair: Pair } {
  const held = {} as { pair: Pair }
  beforeAll(async () => {
    held.pair = await startPair({ oplogSizeMB, ...options })
  })
  afterAll(() => held.pair?.[Symbol.asyncDispose]())
  return held
}

describe('a random workload from before the copy until the commit', () => {
  const on = pairFor({})

  test.each([202, 203])('seed %i: both clusters are equal after the commit', async (seed) => {
    expect(await migrateUnderWorkload({ ...on, seed })).toMatchObject(equalAndUnrepeated)
  })

  test('seed 204, with writes on the source blocked from the commit on: both clusters are equal after the commit', async () => {
    const start = { enableUserWriteBlocking: 'sourceAndDestination' }
    expect(await migrateUnderWorkload({ ...on, seed: 204, start })).toMatchObject(equalAndUnrepeated)
  })

  test('seed 205, with some documents of 15.9 MB: both clusters are equal after the commit', async () => {
    expect(await migrateUnderWorkload({ ...on, seed: 205, steps: 80, huge: true })).toMatchObject(equalAndUnrepeated)
  })
})

describe('kill -9', () => {
  const on = pairFor({ bulk: 200_000 })

  test.each([301, 302])(
    'seed %i: tandem continues by itself within 5 s, does not read a finished segment again, and both clusters are equal',
    async (seed) => {
      const result = await migrateUnderWorkload({
        ...on,
        seed,
        faults: kills(4, 1_500),
        commitFaults: kills(2, 150),
      })
      expect(result).toMatchObject({ ...equalAndUnrepeated, kills: 6 })
      expect(result.slowestRestartMS).toBeLessThan(5_000 * (await slowness()))
    },
  )
})

describe('kill -9 of the verifier', () => {
  const on = pairFor({ bulk: 120_000 })

  const sample: [KillMoment, boolean][] = [
    ['initial hashing', true],
    ['verdict', false],
  ]
  test.each(sample)('during %s (with a planted difference: %s) ends with the same verdict', async (moment, planted) => {
    const { problems, rangesBefore, rangesReadAgain } = await runVerifierKill(on.pair, 601, { moment, planted })
    expect({ problems, rangesReadAgain }).toEqual({ problems: [], rangesReadAgain: 0 })
    if (moment === 'initial hashing') expect(rangesBefore).toBeGreaterThan(0)
  })
})

const sides = ['source', 'destination'] as const

describe('elections', () => {
  const on = pairFor({ bulk: 60_000 })

  test.each(sides)('stepdowns of the %s leave both clusters equal after the commit', async (side) => {
    const result = await migrateUnderWorkload({ ...on, seed: 401, serverFaults: stepDowns(side, 3, 800) })
    expect(result).toMatchObject({ ...equalAndUnrepeated, faults: 3 })
  })
})

describe('broken connections', () => {
  const on = pairFor({ proxied: true, bulk: 60_000 })

  test.each(sides)('cut and hanging connections of the %s leave both clusters equal after the commit', async (side) => {
    const result = await migrateUnderWorkload({ ...on, seed: 501, serverFaults: cuts(side, 2, 1_000, 2_000) })
    expect(result).toMatchObject({ ...equalAndUnrepeated, faults: 2 })
  })
})
