import { runFilterScenario } from '../test/support/filter-scenario.ts'
import type { Pair } from '../test/support/scenario.ts'

/** Runs filters of every shape one after the other; prints a line for each. Returns the names of those that failed. */
export async function runFilters(
  pair: Pair,
  { count, from, steps }: { count: number; from: number; steps: number },
): Promise<{ passed: number; failed: string[] }> {
  const failed: string[] = []
  let passed = 0
  for (let seed = from; seed < from + count; seed++) {
    const begun = performance.now()
    try {
      const { filter, edgeAvoided, state, crossings, documents, problems } = await runFilterScenario(pair, seed, steps)
      const name = `filter, seed ${seed}: ${filter.what}`
      if (problems.length === 0) passed += 1
      else failed.push(name)
      const seconds = ((performance.now() - begun) / 1_000).toFixed(1)
      const edge = edgeAvoided ? 'edge avoided' : `${crossings.length} renames over the edge`
      console.log(
        `${problems.length === 0 ? 'ok  ' : 'FAIL'} ${name} (${seconds} s) ${state}, ${edge}, ${documents} documents`,
      )
      for (const problem of problems.slice(0, 8)) console.log(`     ${problem}`)
    } catch (error) {
      failed.push(`filter, seed ${seed}`)
      console.log(`FAIL filter, seed ${seed}: ${error instanceof Error ? error.message : String(error)}`)
    }
  }
  return { passed, failed }
}
