import { expect, it, vi } from 'vitest'
import { compareClusters } from '../support/compare.ts'
import { mutated, mutations, seedForMutations } from '../support/mutations.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** The embedded verifier, seen over HTTP with real clusters. */

const pair = pairedSets()
const verified = { verification: { enabled: true } }
const committed = { timeoutSeconds: 30, what: 'committed' }
const accepted = { status: 200, body: { success: true } }

const canCommit = (tandem: Tandem) =>
  tandem.waitFor((progress) => progress.canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
const streamHashing = (tandem: Tandem) =>
  tandem.waitFor(({ verification }) => verification?.source.phase === 'stream hashing', {
    timeoutSeconds: 30,
    what: 'followed by the verifier',
  })
const mismatchesOf = async (tandem: Tandem) =>
  (await (await fetch(`${tandem.url}/api/v1/verification/mismatches`)).json()) as {
    mismatches: Record<string, unknown>[]
    total: number
    truncated: boolean
  }

it('an equal migration is committed, and both sides counted alike', async () => {
  await seedForMutations(pair.sourceClient.db(mutated))
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

it.each(mutations.map((mutation) => [mutation.name, mutation] as const))(
  '%s is reported, alone, and repaired',
  async (_, mutation) => {
    await seedForMutations(pair.sourceClient.db(mutated))
    await using tandem = await pair.startInstance()
    await startSync(tandem, verified)
    await streamHashing(tandem)
    await mutation.apply(pair.destinationClient.db(mutated))
    expect(await tandem.post('commit')).toEqual(accepted)
    const { failure } = await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 30, what: 'failed' })
    expect(failure?.error).toBe('VerificationFailed')
    const { mismatches, total } = await mismatchesOf(tandem)
    expect(mismatches).toEqual([expect.objectContaining(mutation.expected)])
    expect(total).toBe(1)
    if (mutation.stays) return
    expect((await tandem.post('repair')).status).toBe(200)
    expect(await tandem.post('resume')).toEqual(accepted)
    await tandem.waitFor(({ state }) => state === 'COMMITTED', committed)
    await vi.waitFor(async () =>
      expect((await compareClusters(pair.source.uri, pair.destination.uri)).differences).toEqual([]),
    )
  },
)
