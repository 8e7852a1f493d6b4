import type { FaultPlan, Outcome, PlannedRun } from './plan.ts'

const problemsShownMax = 8

export interface Tally {
  passed: number
  /** Names of the runs and conclusions that failed. */
  failed: string[]
  /** Number of outcomes of each kind, for plans that distinguish several kinds. */
  kinds: Map<string, number>
}

/** Runs a plan, one run after the other. Prints a line for each run and adds the results to `tally`. */
export async function runPlan<Clusters extends AsyncDisposable>(
  plan: FaultPlan<Clusters>,
  tally: Tally,
  print: (line: string) => void = console.log,
): Promise<void> {
  const failedBefore = tally.failed.length
  await using clusters = await plan.open()
  for (const run of plan.runs) {
    const passed = await report(run, clusters, tally, print)
    if (!passed && plan.endsWithFirstFailure) break
  }
  for (const { name, line, passed } of plan.conclude?.() ?? []) {
    print(line)
    if (passed === true) tally.passed += 1
    else if (passed === false) tally.failed.push(name)
  }
  const message = await plan.close?.(tally.failed.length - failedBefore)
  if (message) print(message)
}

async function report<Clusters>(
  { name, perform }: PlannedRun<Clusters>,
  clusters: Clusters,
  tally: Tally,
  print: (line: string) => void,
): Promise<boolean> {
  const startedAt = performance.now()
  let outcome: Outcome
  try {
    outcome = await perform(clusters)
  } catch (error) {
    tally.failed.push(name)
    print(`FAIL ${name}: ${error instanceof Error ? error.message : String(error)}`)
    return false
  }
  const { problems, summary, skipped, kind } = outcome
  const passed = problems.length === 0
  const counted = skipped ? 'skipped' : kind
  if (counted) tally.kinds.set(counted, (tally.kinds.get(counted) ?? 0) + 1)
  if (skipped) {
    print(`skip ${name}: ${skipped}`)
    return true
  }
  if (passed) tally.passed += 1
  else tally.failed.push(name)
  const seconds = ((performance.now() - startedAt) / 1_000).toFixed(1)
  print(`${passed ? 'ok  ' : 'FAIL'} ${name} (${seconds} s) ${summary}`)
  for (const problem of shown(problems)) print(`     ${problem}`)
  return passed
}

/** Returns the first problems and the last one, which names the file with the instances' output. */
function shown(problems: readonly string[]): readonly string[] {
  if (problems.length <= problemsShownMax) return problems
  return [...problems.slice(0, problemsShownMax), problems.at(-1) as string]
}

/** Returns the names of a plan's runs without running them. */
export function listPlan(plan: FaultPlan): string[] {
  return [...plan.runs].map(({ name }) => name)
}
