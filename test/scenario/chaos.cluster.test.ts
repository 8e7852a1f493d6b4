import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { cuts, kills, stepDowns } from '../support/faults.ts'
import { loadBulk } from '../support/load-bulk.ts'
import { startReplicaSet } from '../support/replica-set.ts'
import { type Pair, runScenario } from '../support/scenario.ts'
import { slowness } from '../support/slowness.ts'
import { type KillMoment, runVerifierKill } from '../support/verifier-kill.ts'

/** A fixed sample of what `npm run chaos` runs in full; a failing seed is named and replays there. */

const equalAndUnrepeated = { equal: true, differences: [], segmentsReadAgain: 0 }

async function startPair(members: number, proxied = false): Promise<Pair> {
  const options = { members, proxied, oplogSizeMB: 1024 }
  const [source, destination] = await Promise.all([startReplicaSet(options), startReplicaSet(options)])
  return { source, destination }
}

async function stopPair(pair: Pair): Promise<void> {
  await Promise.all([pair.source.stop(), pair.destination.stop()])
}

describe('a random workload from before the copy until the commit', () => {
  let pair: Pair
  beforeAll(async () => {
    pair = await startPair(1)
  })
  afterAll(() => stopPair(pair))

  test.each([201, 202, 203])('seed %i ends equal', async (seed) => {
    expect(await runScenario({ pair, seed })).toMatchObject(equalAndUnrepeated)
  })

  test('seed 204, with the source blocked from the commit on, ends equal', async () => {
    const start = { enableUserWriteBlocking: 'sourceAndDestination' }
    expect(await runScenario({ pair, seed: 204, start })).toMatchObject(equalAndUnrepeated)
  })

  test('seed 205, with documents of 15.9 MB among them, ends equal', async () => {
    expect(await runScenario({ pair, seed: 205, steps: 80, huge: true })).toMatchObject(equalAndUnrepeated)
  })
})

describe('kill -9', () => {
  let pair: Pair
  beforeAll(async () => {
    pair = await startPair(1)
    await loadBulk(pair.source.uri, 'bulk', 200_000)
  })
  afterAll(() => stopPair(pair))

  test.each([301, 302])(
    'seed %i: continues by itself within 5 s, reads no finished segment again, ends equal',
    async (seed) => {
      const result = await runScenario({
        pair,
        seed,
        keep: ['bulk'],
        faults: kills(4, 1_500),
        commitFaults: kills(2, 150),
      })
      expect(result).toMatchObject({ ...equalAndUnrepeated, kills: 6 })
      expect(result.slowestRestartMS).toBeLessThan(5_000 * (await slowness()))
    },
  )
})

describe('kill -9 of the verifier', () => {
  let pair: Pair
  beforeAll(async () => {
    pair = await startPair(1)
    await loadBulk(pair.source.uri, 'bulk', 120_000)
  })
  afterAll(() => stopPair(pair))

  const sample: [KillMoment, boolean][] = [
    ['initial hashing', true],
    ['verdict', false],
  ]
  test.each(sample)('at %s, with a difference planted: %s, ends with the same verdict', async (moment, planted) => {
    const { differences, rangesBefore, rangesReadAgain } = await runVerifierKill(pair, 601, { moment, planted }, [
      'bulk',
    ])
    expect({ differences, rangesReadAgain }).toEqual({ differences: [], rangesReadAgain: 0 })
    if (moment === 'initial hashing') expect(rangesBefore).toBeGreaterThan(0)
  })
})

describe('elections and broken connections', () => {
  test.each(['source', 'destination'] as const)('stepdowns of the %s end equal', async (side) => {
    const pair = await startPair(1)
    try {
      await loadBulk(pair.source.uri, 'bulk', 60_000)
      const result = await runScenario({ pair, seed: 401, keep: ['bulk'], faults: stepDowns(side, 3, 800) })
      expect(result).toMatchObject({ ...equalAndUnrepeated, faults: 3 })
    } finally {
      await stopPair(pair)
    }
  })

  test.each(['source', 'destination'] as const)('cut and hanging connections of the %s end equal', async (side) => {
    const pair = await startPair(1, true)
    try {
      await loadBulk(pair.source.uri, 'bulk', 60_000)
      const result = await runScenario({ pair, seed: 501, keep: ['bulk'], faults: cuts(side, 2, 1_000, 2_000) })
      expect(result).toMatchObject({ ...equalAndUnrepeated, faults: 2 })
    } finally {
      await stopPair(pair)
    }
  })
})
