/** Number of steps of a workload, and number of those that the cluster refused. */
interface WorkloadSteps {
  steps: number
  refused: number
}

export interface RehearsalResult {
  /** Rate of the copy in bytes per second: the median, and the 10th (`low`) and 90th (`high`) percentile of its samples. */
  copyBytesPerSecond: { median: number; low: number; high: number } | null
  copySeconds: number
  workload: WorkloadSteps
  eventsApplied: number
  lagSecondsMax: number
  /** Seconds from the SIGKILL of the coordinator until the other instance coordinated. */
  takeoverSeconds: number
  /** The result of the rehearsed commit: how many seconds applications would have to stop writing, and the verdict. */
  dryRun: { outageSeconds: number; verdict: string }
  /** Seconds from `commit` to `canWrite`. */
  cutoverSeconds: number
}

export interface ReverseResult {
  /** Whether the former source refused user writes after the commit; null if its server does not report it. */
  formerSourceBlocked: boolean | null
  /** Seconds from `reverse` until changes were applied in the other direction. */
  reverseSeconds: number
  workload: WorkloadSteps
  eventsApplied: number
  lagSecondsMax: number
  /** Seconds from the second `commit` to `canWrite`. */
  cutoverSeconds: number
}
