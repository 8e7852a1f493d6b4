/**
 * A plan defines what is done to migrations and what must hold at their ends; `runner.ts` runs it. All random choices of a run
 * come from its seed, so a failed run is replayed by its seed.
 */

export interface Outcome {
  /** Problems that were found. The run has passed if there are none. */
  problems: readonly string[]
  /** What happened, for the line of the run. */
  summary: string
  /** Why nothing was run, for example because this build does not have a command. */
  skipped?: string | null
  /** Category under which the run is counted, in addition to passed or failed. */
  kind?: string
}

/** One run as determined by its seed. Nothing has been executed yet. */
export interface PlannedRun<Clusters> {
  /** Names the seed. */
  name: string
  /** Rejects if the run cannot be completed. */
  perform(clusters: Clusters): Promise<Outcome>
}

export interface FaultPlan<Clusters extends AsyncDisposable = AsyncDisposable> {
  /** Starts the clusters of all runs and loads the data that is kept from run to run. */
  open(): Promise<Clusters>
  /** The runs, executed one after the other. A plan of a given duration ends by itself. */
  runs: Iterable<PlannedRun<Clusters>>
  /** True if the plan ends with the first failure, because all runs continue the same sync. */
  endsWithFirstFailure?: boolean
  /** Checks over all runs. A line is printed for each; `passed: null` counts as neither passed nor failed. */
  conclude?(): readonly { name: string; line: string; passed: boolean | null }[]
  /** Called at the end with the number of failures. Returns a message to print, or null. */
  close?(failures: number): Promise<string | null>
}

/** Options of the command line. Each plan has defaults of its own. */
export interface PlanOptions {
  /** Number of runs; for plans with several faults in one run, the number of faults. */
  count: number
  /** The first seed. */
  from: number
  /** Number of workload steps. */
  steps: number | undefined
  /** Number of instances; 0: the seed decides. */
  instances: number | undefined
  /** Kinds of faults. Default: all kinds of the plan. */
  faults: string[] | undefined
  /** Milliseconds for which an instance is suspended or disconnected. */
  awayMS: number
  /** Number of additional documents to copy, which no fault concerns. */
  bulk: number | undefined
  /** Members of each replica set. */
  members: number
}

/** @throws when the command line names a kind that the plan does not have */
export function chosenFaults(kinds: readonly string[], chosen: readonly string[] | undefined): readonly string[] {
  const unknown = chosen?.find((kind) => !kinds.includes(kind))
  if (unknown !== undefined) throw new Error(`--faults takes ${kinds.join(',')}, not ${unknown}`)
  return chosen ?? kinds
}

/** Returns `count` seeds, beginning with `from`. */
export function seedsOf({ from, count }: Pick<PlanOptions, 'from' | 'count'>): number[] {
  return Array.from({ length: count }, (_, at) => from + at)
}
