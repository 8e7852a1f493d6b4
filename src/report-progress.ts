import type { SnapshotFrom } from 'xstate'
import type { instanceMachine } from '../machines/instance.ts'
import type { InstanceContext } from '../machines/instance-context.ts'
import type { ClusterTime } from './domain/cluster-time.ts'
import { secondsOf } from './domain/cluster-time.ts'
import type { Progress, ProgressInfo, PublicState } from './domain/progress.ts'
import type { SyncRecord } from './mongo/metadata.ts'
import type { SyncWork } from './sync-work.ts'

const publicStates = ['IDLE', 'RUNNING', 'PAUSED', 'COMMITTING', 'COMMITTED', 'REVERSING', 'FAILED'] as const

export type InstanceSnapshot = SnapshotFrom<typeof instanceMachine>

export function publicState(snapshot: InstanceSnapshot): PublicState {
  return publicStates.find((state) => snapshot.hasTag(state)) ?? 'IDLE'
}

/** Every field null but `state` and `canCommit`, as the contract has it for IDLE. */
export const idleProgress: Progress = {
  state: 'IDLE',
  canCommit: false,
  canWrite: null,
  info: null,
  lagTimeSeconds: null,
  totalEventsApplied: null,
  collectionCopy: null,
  directionMapping: null,
  mongosyncID: null,
  coordinatorID: null,
  verification: null,
}

export interface ProgressSources {
  snapshot: InstanceSnapshot
  /** The context as stored: `canWrite` is shown only once a crash cannot take it back. */
  stored: InstanceContext | null
  work: SyncWork
  record: SyncRecord
  sourceLatest: ClusterTime
  addresses: Record<'cluster0' | 'cluster1', string>
  mongosyncID: string
  retrying: { what: string; since: string } | undefined
  warnings: string[]
}

/** The contract's progress object; pure but for the figures it is given. */
export function reportProgress(sources: ProgressSources): Progress {
  const { snapshot, stored, work, record, addresses } = sources
  const state = publicState(snapshot)
  const { context } = snapshot
  const { source, destination } = record.configuration
  return {
    state,
    canCommit: snapshot.hasTag('canCommit'),
    // The context turns with the direction; what is stored of it follows a moment later.
    canWrite: context.canWrite && (stored?.canWrite ?? false),
    info: infoOf(state, context),
    lagTimeSeconds: lagOf(state, sources),
    totalEventsApplied: work.totalEventsApplied,
    collectionCopy: copyOf(context, work),
    directionMapping: {
      Source: `${source}: ${addresses[source]}`,
      Destination: `${destination}: ${addresses[destination]}`,
    },
    mongosyncID: sources.mongosyncID,
    coordinatorID: work.lease.holder ?? (state === 'COMMITTED' ? sources.mongosyncID : null),
    verification: work.verification.report(record.configuration),
    ...(context.failure ? { failure: context.failure } : {}),
    ...(sources.warnings.length > 0 ? { warnings: sources.warnings } : {}),
    ...(sources.retrying ? { retrying: sources.retrying } : {}),
  }
}

function infoOf(state: PublicState, context: InstanceContext): ProgressInfo {
  if (state === 'COMMITTED') return 'commit completed'
  if (context.commitRequested) return 'waiting for commit to complete'
  return context.copyCompleted ? 'change event application' : 'collection copy'
}

function lagOf(state: PublicState, { work, sourceLatest }: ProgressSources): number | null {
  if (state === 'PAUSED' || state === 'FAILED' || state === 'REVERSING') return null
  if (state === 'COMMITTED') return 0
  return Math.max(0, secondsOf(sourceLatest) - secondsOf(work.appliedTime))
}

/** 0 of 1 until the copy begins; never more copied than there is; equal at the end, also when there was nothing. */
function copyOf(context: InstanceContext, work: SyncWork): NonNullable<Progress['collectionCopy']> {
  const { total, copied, begun } = work.copyBytes
  if (context.copyCompleted) {
    const bytes = Math.max(1, copied)
    return { estimatedTotalBytes: bytes, estimatedCopiedBytes: bytes }
  }
  if (!begun) return { estimatedTotalBytes: 1, estimatedCopiedBytes: 0 }
  return { estimatedTotalBytes: Math.max(1, total), estimatedCopiedBytes: Math.min(copied, Math.max(1, total)) }
}
