import { expect, it } from 'vitest'
import { corrupted, seedForCorruptions } from '../faults/corruptions.ts'
import { accepted, canCommit } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** The verifier finds no difference in a clean migration. corruptions.long.test.ts tests which differences it must report. */

const pair = pairedSets()
const verified = { verification: { enabled: true } }
const committed = { timeoutSeconds: 30, what: 'committed' }

const mismatchesOf = async (tandem: Tandem) =>
  (await (await fetch(`${tandem.url}/api/v1/verification/mismatches`)).json()) as {
    mismatches: Record<string, unknown>[]
    total: number
    truncated: boolean
  }

it('a migration without differences commits, with equal counts on both sides', async () => {
  await seedForCorruptions(pair.sourceClient.db(corrupted))
  await using tandem = await pair.startInstance()
  await startSync(tandem, verified)
  await canCommit(tandem)
  expect(await tandem.post('commit')).toEqual(accepted)
  const { verification } = await tandem.waitFor(({ state }) => state === 'COMMITTED', committed)
  expect(verification?.source).toEqual({ ...verification?.destination, lagTimeSeconds: expect.any(Number) })
  expect(verification?.source).toMatchObject({
    phase: 'stream hashing',
    hashedDocumentCount: 456,
    estimatedDocumentCount: 456,
  })
  expect((await compareClusters(pair.source.uri, pair.destination.uri)).differences).toEqual([])
  expect(await mismatchesOf(tandem)).toEqual({ success: true, mismatches: [], total: 0, truncated: false })
})
