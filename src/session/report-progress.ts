import type { SnapshotFrom } from 'xstate'
import type { instanceMachine } from '../../machines/instance.ts'
import type { InstanceContext } from '../../machines/instance-context.ts'
import { estimateCatchUp } from '../domain/catch-up.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { secondsOf } from '../domain/cluster-time.ts'
import { estimateCommit } from '../domain/commit-estimate.ts'
import { comparesHashes, warningsOfMethod } from '../domain/compare-method.ts'
import { describeOplogTime, oplogWindowMinSeconds } from '../domain/oplog-time.ts'
import type { Progress, ProgressInfo, PublicState } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import { leftOutBlocking } from '../domain/start-warnings.ts'
import type { SyncRecord } from '../mongo/metadata.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { refusalOfCommit } from './commit-readiness.ts'
import { commitFigures, notReceived } from './commit-report.ts'
import type { SyncSession } from './sync-session.ts'

const publicStates = ['IDLE', 'RUNNING', 'PAUSED', 'COMMITTING', 'COMMITTED', 'REVERSING', 'FAILED'] as const

export type InstanceSnapshot = SnapshotFrom<typeof instanceMachine>

export function publicState(snapshot: InstanceSnapshot): PublicState {
  return publicStates.find((state) => snapshot.hasTag(state)) ?? 'IDLE'
}

/**
 * The state that `progress` shows. COMMITTED implies `canWrite`, which is shown only once it is stored. Until then an
 * instance that has just learnt of the completed commit is shown as COMMITTING.
 */
export function reportedState(
  snapshot: InstanceSnapshot,
  stored: Pick<InstanceContext, 'canWrite'> | null,
): PublicState {
  const state = publicState(snapshot)
  return state === 'COMMITTED' && !stored?.canWrite ? 'COMMITTING' : state
}

/** In IDLE every field but `state` and `canCommit` is null, as the contract requires. The caller may add warnings. */
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
  /** The stored context. `canWrite` is shown only once it is stored, so that a crash cannot undo it. */
  stored: Pick<InstanceContext, 'canWrite'> | null
  session: SyncSession
  record: SyncRecord
  sourceLatest: ClusterTime
  addresses: Record<'cluster0' | 'cluster1', string>
  mongosyncID: string
  retrying: { what: string; since: string } | undefined
  warnings: string[]
  /** Number of live and of lost instances of the sync. */
  instances: { alive: number; lost: number }
  /** Bytes copied by lost instances, if this instance reports them; otherwise 0. */
  orphanedBytes: number
  throttle: Pick<Throttle, 'isActive' | 'report'>
  /** The coordinator's progress, when this instance does not coordinate. */
  coordinator: Progress | null
}

/** Builds the contract's progress object from the given figures. */
export function reportProgress(sources: ProgressSources): Progress {
  const { snapshot, stored, session, record, addresses } = sources
  const state = reportedState(snapshot, stored)
  const { context } = snapshot
  const { source, destination } = record.configuration
  const lagTimeSeconds = lagOf(state, sources)
  return {
    state,
    canCommit:
      snapshot.hasTag('canCommit') &&
      context.convergences === session.peers.sync.context.convergences &&
      refusalOfCommit({ ...sources, lagTimeSeconds }) === null,
    // A reversal changes the context at once and the stored context a moment later, so `canWrite` must be true in both.
    canWrite: context.canWrite && (stored?.canWrite ?? false),
    info: infoOf(state, context),
    lagTimeSeconds,
    totalEventsApplied: session.figures.totalEventsApplied,
    collectionCopy: copyOf(context, sources),
    ...convergingOf(session.figures.convergingCollections),
    ...indexBuildingOf(sources),
    ...pingsOf(state, session),
    directionMapping: {
      Source: `${source}: ${addresses[source]}`,
      Destination: `${destination}: ${addresses[destination]}`,
    },
    mongosyncID: sources.mongosyncID,
    coordinatorID: session.coordination.coordinatorID,
    verification: verificationOf(sources),
    ...comparedOf(session),
    ...(context.failure ? { failure: context.failure } : {}),
    ...catchUpOf(state, context, sources),
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

function lagOf(state: PublicState, { session, sourceLatest }: ProgressSources): number | null {
  if (state === 'PAUSED' || state === 'FAILED' || state === 'REVERSING') return null
  if (state === 'COMMITTED') return 0
  return Math.max(0, secondsOf(sourceLatest) - secondsOf(session.figures.appliedTime))
}

/** Estimates how long a commit would take or will still take, and reports the last rehearsal. */
function commitOf(state: PublicState, sources: ProgressSources): Pick<Progress, 'commit' | 'lastRehearsal'> {
  const { snapshot, session, coordinator } = sources
  const { lastRehearsal } = session.peers.sync.context
  const isAhead = snapshot.hasTag('canCommit') || (state === 'COMMITTING' && !snapshot.context.decided)
  // An instance that does not coordinate knows only the figures of its own work.
  const commit = coordinator ? coordinator.commit : estimateCommit(commitFigures(session, lagOf(state, sources)))
  return { ...(isAhead && commit ? { commit } : {}), ...(lastRehearsal ? { lastRehearsal } : {}) }
}

/**
 * How long event application could pause before the oplog no longer reaches back to its position (known once the oplog
 * has been full), and a warning when this time is short.
 */
function oplogOf(
  state: PublicState,
  sources: ProgressSources,
): Pick<Progress, 'estimatedOplogTimeRemaining' | 'oplogSecondsRemaining' | 'warnings'> {
  const { oplogSeconds } = sources.session.alerts
  const matters = oplogMatters(state, sources)
  const remaining = matters && oplogSeconds !== null && Number.isFinite(oplogSeconds) ? oplogSeconds : null
  const short =
    remaining === null || remaining >= oplogWindowMinSeconds
      ? []
      : [
          `the oplog of the source will no longer reach back to the position of this sync if the sync stops for ${describeOplogTime(remaining)}; enlarge the oplog`,
        ]
  const warnings = [
    ...warningsOf(sources.record.configuration),
    ...warningsOfMethod(sources.record.configuration),
    ...leftOutOf(state, sources),
    ...skippedOf(sources.session.alerts.skippedTimeSeries),
    ...sources.warnings,
    ...notReceived(sources.session.peers.sync, state, sources.snapshot.context),
    ...short,
    ...stoppingOf(sources),
  ]
  return {
    ...(remaining === null
      ? {}
      : { estimatedOplogTimeRemaining: describeOplogTime(remaining), oplogSecondsRemaining: remaining }),
    ...(warnings.length > 0 ? { warnings } : {}),
  }
}

/** Names the instances that have to stop their work before collections are converged again. */
function stoppingOf({ session: { peers } }: ProgressSources): string[] {
  if (!peers.sync.matches('replanning') || peers.waitingFor.length === 0) return []
  return [
    `before collections are converged again, these instances must stop their work: ${peers.waitingFor.join(', ')}`,
  ]
}

/**
 * True until users may write on the destination. Until then the oplog must still contain the sync's position, so that
 * the sync can continue from it. This also applies while the sync is paused or has failed.
 */
function oplogMatters(state: PublicState, { snapshot }: ProgressSources): boolean {
  return ['RUNNING', 'PAUSED', 'COMMITTING', 'FAILED'].includes(state) && !snapshot.context.canWrite
}

function convergingOf(convergingCollections: number): Pick<Progress, 'convergingCollections'> {
  return convergingCollections > 0 ? { convergingCollections } : {}
}

/** The coordinator builds the indexes, so the other instances report what it reports. */
function indexBuildingOf({ snapshot, record, session, coordinator }: ProgressSources): Pick<Progress, 'indexBuilding'> {
  if (record.configuration.buildIndexes === 'never') return {}
  const indexBuilding = coordinator?.indexBuilding ?? session.figures.indexBuilding(snapshot.context.canWrite)
  return indexBuilding ? { indexBuilding } : {}
}

/** The coordinator verifies, so the other instances report what it reports. */
function verificationOf({
  record: { configuration },
  session,
  coordinator,
}: ProgressSources): Progress['verification'] {
  if (!configuration.verification.enabled) return null
  const { initialCompareMethod } = configuration.verification
  const report = coordinator?.verification ?? session.verification.report(configuration)
  return report && { ...report, ...(comparesHashes(configuration) ? { initialCompareMethod } : {}) }
}

function comparedOf({ verification }: SyncSession): Pick<Progress, 'comparedDocumentCount'> {
  const { comparedDocuments } = verification
  return comparedDocuments > 0 ? { comparedDocumentCount: comparedDocuments } : {}
}

/** The clusters are pinged only in these states. */
function pingsOf(state: PublicState, { figures }: SyncSession): Pick<Progress, 'source' | 'destination'> {
  if (state !== 'RUNNING' && state !== 'COMMITTING') return {}
  const [source, destination] = [figures.roundTrips.latencyMS('source'), figures.roundTrips.latencyMS('destination')]
  return {
    ...(source === null ? {} : { source: { pingLatencyMs: source } }),
    ...(destination === null ? {} : { destination: { pingLatencyMs: destination } }),
  }
}

function catchUpOf(
  state: PublicState,
  { copyCompleted }: InstanceContext,
  sources: ProgressSources,
): Pick<Progress, 'estimatedSecondsToCatchUp'> {
  if (state !== 'RUNNING' || !copyCompleted) return {}
  const seconds = estimateCatchUp(lagOf(state, sources), sources.session.figures.appliedPerSecondLately)
  return seconds === null ? {} : { estimatedSecondsToCatchUp: seconds }
}

/** Figures for the metrics. */
function alertsOf(state: PublicState, sources: ProgressSources): Partial<Progress> {
  const { oplogVisible, mismatches, differingDocuments } = sources.session.alerts
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

/** The number of skipped time-series collections that a warning names. */
const namedMax = 20

function skippedOf(skipped: readonly string[]): string[] {
  if (skipped.length === 0) return []
  const more = skipped.length > namedMax ? ` and ${skipped.length - namedMax} more` : ''
  const are = skipped.length === 1 ? 'time-series collection is' : 'time-series collections are'
  return [`${skipped.length} ${are} not synced: ${skipped.slice(0, namedMax).join(', ')}${more}`]
}

/** The warning of `leftOutBlocking`, until users may write on the destination. */
function leftOutOf(state: PublicState, { snapshot, session, record }: ProgressSources): string[] {
  const isAhead = !snapshot.context.canWrite && state !== 'COMMITTED' && state !== 'REVERSING'
  return isAhead ? leftOutBlocking(record.configuration, session.source.before6) : []
}

/**
 * Reports 0 of 1 bytes until the copy begins, and never more copied bytes than the total. At the end, the bytes of all
 * instances add up to the total. The coordinator includes the bytes of lost instances.
 */
function copyOf(
  context: InstanceContext,
  { session, orphanedBytes }: ProgressSources,
): NonNullable<Progress['collectionCopy']> {
  const { total, copied, isPlanned } = session.figures.copyBytes
  const own = copied + orphanedBytes
  if (context.copyCompleted && session.coordination.isAlone) {
    const bytes = Math.max(1, total)
    return { estimatedTotalBytes: bytes, estimatedCopiedBytes: bytes }
  }
  if (!isPlanned && !context.copyCompleted) return { estimatedTotalBytes: 1, estimatedCopiedBytes: 0 }
  return { estimatedTotalBytes: Math.max(1, total), estimatedCopiedBytes: Math.min(own, Math.max(1, total)) }
}
