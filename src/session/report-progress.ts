import type { SnapshotFrom } from 'xstate'
import type { instanceMachine } from '../../machines/instance.ts'
import type { InstanceContext } from '../../machines/instance-context.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { secondsOf } from '../domain/cluster-time.ts'
import { estimateCommit } from '../domain/commit-estimate.ts'
import { describeOplogTime, oplogWindowMinSeconds } from '../domain/oplog-time.ts'
import type { Progress, ProgressInfo, PublicState } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { SyncRecord } from '../mongo/metadata.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { commitFigures } from './commit-figures.ts'
import { refusalOfCommit } from './commit-readiness.ts'
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
  stored: Pick<InstanceContext, 'canWrite'> | null
  work: SyncWork
  record: SyncRecord
  sourceLatest: ClusterTime
  addresses: Record<'cluster0' | 'cluster1', string>
  mongosyncID: string
  retrying: { what: string; since: string } | undefined
  warnings: string[]
  /** Instances of the sync that are alive, and lost ones. */
  instances: { alive: number; lost: number }
  /** Bytes copied by lost instances, when this one counts them. */
  strandedBytes: number
  throttle: Pick<Throttle, 'isActive' | 'report'>
  /** The coordinator's progress, when this instance does not coordinate. */
  coordinator: Progress | null
}

/** The contract's progress object; pure but for the figures it is given. */
export function reportProgress(sources: ProgressSources): Progress {
  const { snapshot, stored, work, record, addresses } = sources
  const state = publicState(snapshot)
  const { context } = snapshot
  const { source, destination } = record.configuration
  const lagTimeSeconds = lagOf(state, sources)
  return {
    state,
    canCommit: snapshot.hasTag('canCommit') && refusalOfCommit({ ...sources, lagTimeSeconds }) === null,
    // The context turns with the direction; what is stored of it follows a moment later.
    canWrite: context.canWrite && (stored?.canWrite ?? false),
    info: infoOf(state, context),
    lagTimeSeconds,
    totalEventsApplied: work.figures.totalEventsApplied,
    collectionCopy: copyOf(context, sources),
    directionMapping: {
      Source: `${source}: ${addresses[source]}`,
      Destination: `${destination}: ${addresses[destination]}`,
    },
    mongosyncID: sources.mongosyncID,
    coordinatorID: work.coordination.coordinatorID,
    verification: record.configuration.verification.enabled
      ? (sources.coordinator?.verification ?? work.verification.report(record.configuration))
      : null,
    ...(context.failure ? { failure: context.failure } : {}),
    ...oplogOf(state, sources),
    ...alertsOf(state, sources),
    ...(sources.throttle.isActive ? { limits: sources.throttle.report } : {}),
    ...commitOf(state, sources),
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
  return Math.max(0, secondsOf(sourceLatest) - secondsOf(work.figures.appliedTime))
}

/** What a commit would take or will still take, and what the last rehearsal took. */
function commitOf(state: PublicState, sources: ProgressSources): Pick<Progress, 'commit' | 'lastRehearsal'> {
  const { snapshot, work, coordinator } = sources
  const { lastRehearsal } = work.team.sync.context
  const isAhead = snapshot.hasTag('canCommit') || (state === 'COMMITTING' && !snapshot.context.decided)
  // An instance that does not coordinate knows its own share alone.
  const commit = coordinator ? coordinator.commit : estimateCommit(commitFigures(work, lagOf(state, sources)))
  return { ...(isAhead && commit ? { commit } : {}), ...(lastRehearsal ? { lastRehearsal } : {}) }
}

/** How long the stream could stand still, once the oplog has been full; and early, that it is not long. */
function oplogOf(
  state: PublicState,
  sources: ProgressSources,
): Pick<Progress, 'estimatedOplogTimeRemaining' | 'oplogSecondsRemaining' | 'warnings'> {
  const { oplogSeconds } = sources.work.alerts
  const matters = oplogMatters(state, sources)
  const left = matters && oplogSeconds !== null && Number.isFinite(oplogSeconds) ? oplogSeconds : null
  const short =
    left === null || left >= oplogWindowMinSeconds
      ? []
      : [
          `the oplog of the source overtakes this sync when it stands still for ${describeOplogTime(left)}; make it larger`,
        ]
  const warnings = [...warningsOf(sources.record.configuration), ...sources.warnings, ...short]
  return {
    ...(left === null ? {} : { estimatedOplogTimeRemaining: describeOplogTime(left), oplogSecondsRemaining: left }),
    ...(warnings.length > 0 ? { warnings } : {}),
  }
}

/** Until the destination is open to users the sync has to go on from its position; also, and all the more, while it stands still. */
function oplogMatters(state: PublicState, { snapshot }: ProgressSources): boolean {
  return ['RUNNING', 'PAUSED', 'COMMITTING', 'FAILED'].includes(state) && !snapshot.context.canWrite
}

/** What the metrics show and progress does not. */
function alertsOf(state: PublicState, sources: ProgressSources): Partial<Progress> {
  const { oplogVisible, mismatches, differingDocuments } = sources.work.alerts
  return {
    instances: sources.instances,
    ...(oplogVisible !== null && oplogMatters(state, sources) ? { oplogVisible } : {}),
    ...(mismatches === null ? {} : { mismatches }),
    ...(differingDocuments === null ? {} : { differingDocuments }),
  }
}

function warningsOf({ reversible, enableUserWriteBlocking }: StartConfiguration): string[] {
  if (!reversible || enableUserWriteBlocking === 'sourceAndDestination') return []
  return [
    `this sync is reversible, but reverse will be refused: enableUserWriteBlocking is ${enableUserWriteBlocking}, not sourceAndDestination`,
  ]
}

/**
 * 0 of 1 until the copy begins; never more copied than there is. At the end what all instances copied adds up to the total;
 * what lost ones had copied counts with the coordinator.
 */
function copyOf(
  context: InstanceContext,
  { work, strandedBytes }: ProgressSources,
): NonNullable<Progress['collectionCopy']> {
  const { total, copied, begun } = work.figures.copyBytes
  const own = copied + strandedBytes
  if (context.copyCompleted && work.coordination.isAlone) {
    const bytes = Math.max(1, total)
    return { estimatedTotalBytes: bytes, estimatedCopiedBytes: bytes }
  }
  if (!begun && !context.copyCompleted) return { estimatedTotalBytes: 1, estimatedCopiedBytes: 0 }
  return { estimatedTotalBytes: Math.max(1, total), estimatedCopiedBytes: Math.min(own, Math.max(1, total)) }
}
