import { commitKillPlan, describePlan } from '../test/support/commit-kill-plan.ts'
import { runCommitKill } from '../test/support/commit-kills.ts'
import type { Pair } from '../test/support/scenario.ts'

const shownMax = 8

/** Runs `count` commits with kills, one after the other; prints a line for each. Returns the names of those that failed. */
export async function runCommitKills(
  pair: Pair,
  { count, from }: { count: number; from: number },
): Promise<{ passed: number; failed: string[] }> {
  const failed: string[] = []
  let passed = 0
  let skipped = 0
  for (let seed = from; seed < from + count; seed++) {
    const plan = commitKillPlan(seed)
    const name = `commit, seed ${seed}: ${describePlan(plan)}`
    const begun = performance.now()
    try {
      const result = await runCommitKill(pair, seed, plan)
      const good = result.problems.length === 0
      if (result.skipped) skipped += 1
      else if (good) passed += 1
      else failed.push(name)
      const seconds = ((performance.now() - begun) / 1_000).toFixed(1)
      console.log(
        result.skipped
          ? `skip ${name}: ${result.skipped}`
          : `${good ? 'ok  ' : 'FAIL'} ${name} (${seconds} s) ${result.faults} killed, ${result.sourceWrites} writes on ` +
              `the source, ${result.destinationWrites} on the destination, canWrite after ${result.writableAfterMS} ms`,
      )
      for (const problem of result.problems.slice(0, shownMax)) console.log(`     ${problem}`)
      if (result.problems.length > shownMax) console.log(`     ${result.problems.at(-1)}`)
    } catch (error) {
      failed.push(name)
      console.log(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  console.log(`${passed} ok, ${failed.length} failed${skipped > 0 ? `, ${skipped} skipped` : ''}`)
  return { passed, failed }
}
