import { afterAll, beforeAll, expect, it } from 'vitest'
import { type Pair, startPair } from '../faults/clusters.ts'
import { runCommitKill } from '../faults/commit-kill.ts'
import { type CommitKillPlan, describePlan } from '../faults/commit-kill-plan.ts'

/** Runs a fixed sample of the cases of `npm run chaos -- --commitKills 200`. */

let pair: Pair
beforeAll(async () => {
  pair = await startPair()
})
afterAll(() => pair?.[Symbol.asyncDispose]())

const usual: CommitKillPlan = {
  instances: 2,
  way: 'commit',
  enableUserWriteBlocking: 'sourceAndDestination',
  eager: true,
  death: { atStep: 'unblocked' },
  awayMS: 200,
  abortAfterMS: 0,
  maxSeconds: 1,
}
const sample: CommitKillPlan[] = [
  usual,
  { ...usual, death: { atStep: 'unblock' } },
  { ...usual, instances: 1, way: 'abort', abortAfterMS: 100, death: { afterMS: [150], whom: 'an instance' } },
  { ...usual, instances: 1, way: 'dryRun', death: { atStep: 'reversePosition' } },
]

it.each(sample.map((plan) => [describePlan(plan), plan] as const))(
  '%s: no acknowledged write on either cluster is lost, and everything else is equal',
  async (_name, plan) => {
    const result = await runCommitKill(pair, 1, plan)
    expect(result).toMatchObject({ problems: [], skipped: null })
    expect(result.faults).toBeGreaterThan(0)
  },
)
