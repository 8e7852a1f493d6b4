/**
 * A plan says what is done to migrations and what must hold at their ends; `runner.ts` runs it. Everything that a run draws
 * comes from its seed, so a run that has failed is replayed by its seed.
 */

export interface Outcome {
  /** What is not as it should be; the run has passed where this is empty. */
  problems: readonly string[]
  /** What happened, for the line of the run. */
  summary: string
  /** The reason why nothing was run, such as a command that this build does not have. */
  skipped?: string | null
  /** What the run counts as, beside passed or failed. */
  kind?: string
}

/** One run as its seed decides it. Nothing has been done yet. */
export interface PlannedRun<Clusters> {
  /** Names the seed. */
  name: string
  /** Rejects where the run cannot be brought to its end. */
  perform(clusters: Clusters): Promise<Outcome>
}

export interface FaultPlan<Clusters extends AsyncDisposable = AsyncDisposable> {
  /** Starts the clusters of all runs and loads what stays on them from run to run. */
  open(): Promise<Clusters>
  /** Taken one after the other; a plan of a given duration ends by itself. */
  runs: Iterable<PlannedRun<Clusters>>
  /** The runs continue one sync, so none can follow one that has failed. */
  endsWithFirstFailure?: boolean
  /** What all the runs together must have kept to; a line is printed for each, and `null` counts as neither passed nor failed. */
  conclude?(): readonly { name: string; line: string; passed: boolean | null }[]
  /** Called at the end, with the number of failures. Returns what to tell the reader. */
  close?(failures: number): Promise<string | null>
}

/** What the command line gives; each plan has defaults of its own. */
export interface PlanOptions {
  /** Runs, or faults where several share one run. */
  count: number
  /** The first seed. */
  from: number
  /** Steps of the workload. */
  steps: number | undefined
  /** 0: the seed decides. */
  instances: number | undefined
  /** Kinds of faults; all of the plan's unless given. */
  faults: string[] | undefined
  /** How long a stopped or disconnected instance is away. */
  awayMS: number
  /** Documents to copy that no fault is about. */
  bulk: number | undefined
  /** Of each replica set. */
  members: number
}

/** @throws when the command line names a kind that the plan does not have */
export function chosenFaults(kinds: readonly string[], chosen: readonly string[] | undefined): readonly string[] {
  const unknown = chosen?.find((kind) => !kinds.includes(kind))
  if (unknown !== undefined) throw new Error(`--faults takes ${kinds.join(',')}, not ${unknown}`)
  return chosen ?? kinds
}

/** `count` seeds from the first. */
export function seedsOf({ from, count }: Pick<PlanOptions, 'from' | 'count'>): number[] {
  return Array.from({ length: count }, (_, at) => from + at)
}
