import type { Progress } from './progress.ts'

/** What is known of all instances of one sync together: the answer of `GET /api/v1/instances`. */

/** One of the instances, as it was when it was last heard of. */
export interface InstanceRow {
  mongosyncID: string
  /** It leads the sync, as it believes itself. */
  coordinator: boolean
  /** Lost: not heard of for longer than its lease; others have taken its work over or are about to. */
  status: 'alive' | 'lost'
  lastSeenSeconds: number
  /** The parts of the change stream that it applies. */
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
}

export interface InstancesReport {
  instances: InstanceRow[]
  totals: InstancesTotals
}

/**
 * One sync from its instances' figures. Each reports the bytes that it copied itself, so these add up; what a lost one
 * copied is counted by the coordinator, and the lost one reports 0. The total is the whole in each of their reports:
 * the largest of the live ones' is the one that was brought up to date last.
 */
export function totalsOf(instances: readonly Pick<InstanceRow, 'status' | 'progress'>[]): InstancesTotals {
  const copies = instances.map(({ progress }) => progress.collectionCopy)
  const estimatedCopiedBytes = sum(copies.map((copy) => copy?.estimatedCopiedBytes ?? 0))
  const alive = copies.filter((_, index) => instances[index]?.status === 'alive')
  const estimatedTotalBytes = largestTotal(alive) || largestTotal(copies)
  // What one had begun and another goes on with may count for both until the copy has ended.
  const isCopying = instances.some(
    ({ status, progress: { state, info } }) => status === 'alive' && state === 'RUNNING' && info === 'collection copy',
  )
  return {
    estimatedCopiedBytes,
    estimatedTotalBytes,
    percent: Math.min(percentOf(estimatedCopiedBytes, estimatedTotalBytes), isCopying ? nearlyAll : 100),
    lagTimeSeconds: largest(
      instances.flatMap(({ status, progress: { lagTimeSeconds } }) =>
        // The lag of a lost one stands still; its successor's is the one that counts.
        status === 'alive' && lagTimeSeconds !== null ? [lagTimeSeconds] : [],
      ),
    ),
    totalEventsApplied: sum(instances.map(({ progress }) => progress.totalEventsApplied ?? 0)),
  }
}

const nearlyAll = 99.99

/** Rounded down, so that 100 means all of it; never above, though the figures are of slightly different moments. */
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
