import { expect, it, vi } from 'vitest'
import { type Break, breaks, breaksOfTheCopy } from './breaks.ts'
import { smallWorld } from './options.ts'
import { simulate } from './run.ts'

/** The simulation finds each fault that is built into the product or the world: its rules can fail. */

vi.setConfig({ testTimeout: 120_000 })

/**
 * For each mutation a seed whose world, or one of the next, finds it soon: what is found where changes with every change of the
 * product's timing. Any other seed may, too: `npm run simulate -- --break <name>`.
 */
const finders: Record<Break, number> = {
  'no-fence': 7,
  'stored-expiry': 6,
  'monotonic-alone': 80,
  'name-and-pid': 11,
  'blind-claim': 12,
  'no-burial': 12,
  'late-accepted': 24,
  'sessions-left-open': 24,
  'positions-unfenced': 17,
  'watermark-early': 5,
  'lost-event': 5,
  'barrier-early': 7,
  'seen-too-much': 15,
  'barrier-for-all': 3,
  'copy-judged-late': 14,
  'plan-unfenced': 14,
  'copy-end-unfenced': 17,
  'tombstones-removed-early': 1,
  'no-tombstones': 1,
  'tombstones-unread': 1,
  'shared-ahead': 1,
  'shared-batch-lost': 1,
  'verifier-blind': 3,
}

const worldsMax = 12

/** With several instances, none reads the events of all partitions for long. */
const instancesOf: Partial<Record<Break, number>> = { 'shared-ahead': 1, 'shared-batch-lost': 1 }

/** The end of a copy comes late only when a lease has expired since, which takes as long as a small world lasts. */
const stepsOf: Partial<Record<Break, number>> = { 'copy-end-unfenced': 25_000 }

it.each(breaks)('finds what is wrong: %s', async (mutation) => {
  const first = finders[mutation]
  const steps = stepsOf[mutation] ?? smallWorld.steps
  const instances = instancesOf[mutation] ?? smallWorld.instances
  const world = { ...smallWorld, steps, instances, copies: breaksOfTheCopy.includes(mutation) }
  expect((await simulate({ ...world, seed: first })).violation).toBeNull()
  const worlds = Array.from({ length: worldsMax }, (_, at) => first + at)
  let found: string | null = null
  for (const seed of worlds) {
    found ??= (await simulate({ ...world, seed, breaks: mutation })).violation
    if (found) break
  }
  expect(found).not.toBeNull()
})
