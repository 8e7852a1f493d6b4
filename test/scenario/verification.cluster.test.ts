import { expect, it } from 'vitest'
import { runCorruption } from '../faults/corruption-run.ts'
import { type Corruption, corrupted, corruptions, type Phase, seedForCorruptions } from '../faults/corruptions.ts'
import { compareClusters } from '../support/compare.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** The embedded verifier, seen over HTTP with real clusters. */

const pair = pairedSets()
const verified = { verification: { enabled: true } }
const committed = { timeoutSeconds: 30, what: 'committed' }
const accepted = { status: 200, body: { success: true } }

const canCommit = (tandem: Tandem) =>
  tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
const mismatchesOf = async (tandem: Tandem) =>
  (await (await fetch(`${tandem.url}/api/v1/verification/mismatches`)).json()) as {
    mismatches: Record<string, unknown>[]
    total: number
    truncated: boolean
  }

it('an equal migration is committed, and both sides counted alike', async () => {
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

/** Of what `npm run mutations` runs in full: documents, definitions, lost events and one that is gone by itself, in every phase. */
const sample: [Phase, string, 'reported' | 'gone'][] = [
  ['copying', 'a missing document', 'reported'],
  ['copying', 'a foreign document in the place of one that is copied later', 'reported'],
  ['hashing', 'a lost update', 'reported'],
  ['hashing', '_id spelled as another number type', 'reported'],
  ['applying', 'double for int32', 'reported'],
  ['applying', 'another content that the source then writes anew', 'gone'],
  ['committing', 'another content in a capped collection', 'reported'],
  ['committing', 'another key of an index', 'reported'],
]

it.each(sample)('while %s, %s is %s, alone, and not there when COMMITTED', async (phase, name, outcome) => {
  const corruption = corruptions.find((one) => one.name === name)
  expect(corruption).toBeDefined()
  expect(await runCorruption(pair, phase, corruption as Corruption)).toMatchObject({ outcome, problems: [] })
})
