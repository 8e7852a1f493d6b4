import { expect, it, vi } from 'vitest'
import { type Break, breaks, breaksOfSharing, breaksOfTheCopy } from './breaks.ts'
import { smallWorld } from './options.ts'
import { simulate } from './run.ts'

/** The simulation detects each fault that is built into the product or the world. This proves that its invariants can fail. */

vi.setConfig({ testTimeout: 120_000 })

/**
 * For each mutation, the first of up to twelve consecutive seeds. One of them must detect the mutation. A change of the
 * product's timing can change which seed does. To try other seeds: `npm run simulate -- --break <name>`.
 */
const firstSeeds: Record<Break, number> = {
  'no-fence': 7,
  'stored-expiry': 6,
  'monotonic-alone': 72,
  'name-and-pid': 11,
  'blind-claim': 12,
  'no-drain': 12,
  'late-accepted': 24,
  'sessions-left-open': 24,
  'positions-unfenced': 17,
  'watermark-early': 5,
  'lost-event': 5,
  'barrier-early': 7,
  'seen-too-much': 15,
  'barrier-for-all': 3,
  'barrier-unfenced': 5,
  'sync-unguarded': 14,
  'copy-judged-late': 224,
  'plan-unfenced': 3,
  'plan-removal-unfenced': 3,
  'copy-end-unfenced': 20,
  'tombstones-removed-early': 1,
  'no-tombstones': 1,
  'tombstones-unread': 56,
  'claim-verifies': 1,
  'ended-claim-verifies': 1,
  'differences-unstored': 1,
  'differences-stored-late': 1,
  'results-of-another-pass': 2,
  'shared-ahead': 1,
  'shared-batch-lost': 1,
  'verifier-blind': 3,
}

const worldsMax = 12

/** With several instances, no instance reads the events of all partitions for long. */
const instancesOf: Partial<Record<Break, number>> = { 'shared-ahead': 1, 'shared-batch-lost': 1 }

/** The end of a copy or of a barrier is delivered too late only after a lease has expired, which takes longer than a small world lasts. */
const stepsOf: Partial<Record<Break, number>> = { 'copy-end-unfenced': 60_000, 'barrier-unfenced': 20_000 }

/** Few barriers exist while a coordinator takes over, unless DDL is frequent. */
const definitionRateOf: Partial<Record<Break, number>> = { 'barrier-unfenced': 2 }

/** Mutations that also delay statements. The delay alone must do no harm, without the removal of a condition. */
const harmlessWhenGuarded: Break[] = ['plan-unfenced', 'plan-removal-unfenced']

it.each(breaks)('detects the mutation %s', async (mutation) => {
  const first = firstSeeds[mutation]
  const steps = stepsOf[mutation] ?? smallWorld.steps
  const instances = instancesOf[mutation] ?? smallWorld.instances
  const definitionRate = definitionRateOf[mutation] ?? smallWorld.definitionRate
  const verifies = breaksOfSharing.includes(mutation)
  const copies = breaksOfTheCopy.includes(mutation)
  // With more changes, event application would repair most documents that differ before the verdict.
  const rate = verifies ? 4 : smallWorld.rate
  const world = { ...smallWorld, steps, instances, definitionRate, rate, copies, verifies }
  expect((await simulate({ ...world, seed: first })).violation).toBeNull()
  const worlds = Array.from({ length: worldsMax }, (_, at) => first + at)
  let detecting: number | null = null
  for (const seed of worlds) {
    if ((await simulate({ ...world, seed, breaks: mutation })).violation === null) continue
    detecting = seed
    break
  }
  expect(detecting).not.toBeNull()
  if (detecting === null || !harmlessWhenGuarded.includes(mutation)) return
  // The missing condition makes the difference, and not the delay.
  expect((await simulate({ ...world, seed: detecting, breaks: mutation, guarded: true })).violation).toBeNull()
})
