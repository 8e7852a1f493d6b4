import type { Progress } from './progress.ts'

/** All instances of one sync together: the answer of `GET /api/v1/instances`. */

/** One instance, as it last reported. */
export interface InstanceRow {
  mongosyncID: string
  /** True if the instance considers itself the coordinator. */
  coordinator: boolean
  /** `lost`: the last heartbeat is older than 10 s (3 s with Redis). Other instances take over its work. */
  status: 'alive' | 'lost'
  /** Seconds since its last heartbeat. */
  lastSeenSeconds: number
  /** The partitions of the change stream that it applies. */
  partitions: number[]
  progress: Progress
}

export interface InstancesTotals {
  estimatedCopiedBytes: number
  estimatedTotalBytes: number
  /** 0 to 100 with two decimals; 100 only when nothing is left to copy. */
  percent: number
  /** Null while no live instance knows its lag. */
  lagTimeSeconds: number | null
  totalEventsApplied: number
  /** Absent while no instance has compared a document. */
  comparedDocumentCount?: number
}

export interface InstancesReport {
  instances: InstanceRow[]
  totals: InstancesTotals
}

/**
 * Combines the figures of the instances into those of the sync. Each instance reports the bytes that it copied itself,
 * so these are summed. The bytes that a lost instance copied are in the coordinator's figure, and the row of the lost
 * instance has 0. Every report has the total of the whole sync, and the largest total of a live instance is the most recent.
 */
export function totalsOf(instances: readonly Pick<InstanceRow, 'status' | 'progress'>[]): InstancesTotals {
  const copies = instances.map(({ progress }) => progress.collectionCopy)
  const estimatedCopiedBytes = sum(copies.map((copy) => copy?.estimatedCopiedBytes ?? 0))
  const alive = copies.filter((_, index) => instances[index]?.status === 'alive')
  const estimatedTotalBytes = largestTotal(alive) || largestTotal(copies)
  // A segment that moved from one instance to another may count for both until the copy has ended.
  const isCopying = instances.some(
    ({ status, progress: { state, info } }) => status === 'alive' && state === 'RUNNING' && info === 'collection copy',
  )
  const compared = sum(instances.map(({ progress }) => progress.comparedDocumentCount ?? 0))
  return {
    estimatedCopiedBytes,
    estimatedTotalBytes,
    percent: Math.min(percentOf(estimatedCopiedBytes, estimatedTotalBytes), isCopying ? nearlyAll : 100),
    lagTimeSeconds: largest(
      instances.flatMap(({ status, progress: { lagTimeSeconds } }) =>
        // The lag of a lost instance no longer changes. The new owners of its partitions report the current lag.
        status === 'alive' && lagTimeSeconds !== null ? [lagTimeSeconds] : [],
      ),
    ),
    totalEventsApplied: sum(instances.map(({ progress }) => progress.totalEventsApplied ?? 0)),
    ...(compared > 0 ? { comparedDocumentCount: compared } : {}),
  }
}

const nearlyAll = 99.99

/**
 * Returns the copied percentage, rounded down, so that 100 means that everything is copied. It is never above 100, even
 * if the two figures are from slightly different moments.
 */
export function percentOf(copied: number, total: number): number {
  if (total <= 0) return 0
  if (copied >= total) return 100
  return Math.min(nearlyAll, Math.floor((copied * 10_000) / total) / 100)
}

function sum(values: readonly number[]): number {
  return values.reduce((sum, value) => sum + value, 0)
}

function largest(values: readonly number[]): number | null {
  return values.length === 0 ? null : Math.max(...values)
}

function largestTotal(copies: readonly Progress['collectionCopy'][]): number {
  return largest(copies.map((copy) => copy?.estimatedTotalBytes ?? 0)) ?? 0
}
