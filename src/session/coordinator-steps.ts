import type { SyncStep } from '../../machines/sync.ts'
import type { CoordinatorReport } from '../../machines/sync-context.ts'
import { type CommitParts, finishIndexes, selectedDatabases } from '../commit/finish-commit.ts'
import { findLateWrites } from '../commit/late-changes.ts'
import { blocksDestination, setWriteBlocking } from '../commit/write-blocking.ts'
import { electionOf } from '../definitions/listing.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { LateWrites } from '../domain/commit-request.ts'
import { assert, StoppedError, toFailure } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { retry } from '../mongo/retry.ts'
import { uuidOfHex } from '../mongo/uuid.ts'
import type { SyncSession } from './sync-session.ts'

/**
 * Does the coordinator's work in a step; resolves with its report. Rejects with StoppedError when `signal` is aborted.
 * @param dryRun true when the commit that this instance has received is a rehearsal
 */
export type StepWork = (signal: AbortSignal, dryRun: boolean) => Promise<CoordinatorReport>

/**
 * Time limit of the search for late writes on the source, ms. Applications already write on the destination meanwhile.
 */
const lateWritesLimitMS = 30_000

/** The coordinator's work for each step of the sync machine. */
export function coordinatorSteps(session: SyncSession): Record<SyncStep, StepWork> {
  const { commit } = session
  return {
    initialise: (signal) => initialise(session, signal),
    replan: (signal) => replan(session, signal),
    gather: (signal, dryRun) => commit.gather(signal, dryRun),
    takeCommitTimestamp: (signal, dryRun) => commit.takeCommitTimestamp(signal, dryRun),
    applyAll: (signal, dryRun) => commit.applyAll(signal, dryRun),
    prepare: (signal, dryRun) => commit.prepare(signal, dryRun),
    verify: (signal, dryRun) => commit.verify(signal, dryRun),
    decide: (signal, dryRun) => commit.decide(signal, dryRun),
    open: (signal) => open(session, signal),
    convert: (signal) => convert(session, signal),
    undo: (signal) => undo(session, signal),
    prepareDestination: (signal) => prepareDestination(session, signal),
  }
}

/** Runs the work under the lease, after all earlier work has ended. */
async function alone(session: SyncSession, signal: AbortSignal, work: () => Promise<void>): Promise<void> {
  await session.runs.finish(signal, async () => {
    await session.joinElection()
    await work()
  })
}

async function initialise(session: SyncSession, signal: AbortSignal): Promise<CoordinatorReport> {
  await alone(session, signal, async () => {
    const { source, selection, context, runs } = session
    const election = source.sharded ? undefined : electionOf(source)
    const listed = selectedDatabases({ source, selection, context: { ...context, signal: runs.signal } })
    for (const ahead of [election, listed]) ahead?.catch(() => {})
    const replication = await session.load()
    // Read after the stored state: a reversal removes the record first, so this finds out if that state is incomplete.
    const current = session.ensureNotReversed()
    await replication.initialise({ listed, election }, current)
    session.initialisedBy(replication)
  })
  return { type: 'initialised' }
}

/** Prepares collections to be converged again, once all instances have stopped their earlier work. */
async function replan(session: SyncSession, signal: AbortSignal): Promise<CoordinatorReport> {
  const { runs, verification, peers } = session
  let startTime: ClusterTime | null = null
  await alone(session, signal, async () => {
    // The plan uses one state of the sync. If the filters are replaced meanwhile, this report is ignored.
    const { sync } = peers
    const { convergences, scope, filterChange } = sync.context
    await verification.ended
    await peers.stoppedFor(convergences, runs.signal)
    await peers.alone(runs.signal)
    const replication = await session.load(true, sync)
    await session.ensureNotReversed()
    if (filterChange?.begun === false) await reportPlanBegun(session, convergences)
    const uuids = scope === 'all' || scope === null ? 'all' : new Set(scope.map(uuidOfHex))
    startTime = await replication.replan(uuids, filterChange, (which) => verification.discardResultsOf(which))
    if (filterChange) await verification.beginAtTime()
  })
  assert(startTime !== null, 'a convergence was planned without a start time')
  return { type: 'convergence.planned', startTime: String(startTime) }
}

/**
 * Stores that the plan for the current filters begins, so the destination may depend on them from now on. If the filters
 * are replaced before this is stored, the plan does not begin, and this rejects with StoppedError.
 */
async function reportPlanBegun({ peers }: SyncSession, convergences: number): Promise<void> {
  const { context } = await peers.report({ type: 'convergence.planBegun' }, { ...peers.worked, convergences })
  if (context.convergences !== convergences || !context.filterChange?.begun) throw new StoppedError()
}

/** Enables user writes on the destination. The decision is already stored. */
async function open(session: SyncSession, signal: AbortSignal): Promise<CoordinatorReport> {
  const { record, context, destination, runs, atStep } = session
  await alone(session, signal, async () => {
    if (!blocksDestination(record.configuration)) return
    atStep('unblock')
    const retrying = { ...context, signal: runs.signal }
    await retry('allowing writes on the destination', retrying, () => setWriteBlocking(destination, false))
    atStep('unblocked')
  })
  session.commit.timing.reset()
  return { type: 'commit.opened' }
}

/** Does the work that remains once users write on the destination. */
async function convert(session: SyncSession, signal: AbortSignal): Promise<CoordinatorReport> {
  await alone(session, signal, async () => {
    const { commit } = await session.load()
    await both(reportLateWrites(session, commit), finishIndexes(commit))
  })
  return { type: 'commit.converted' }
}

/**
 * Searches for late writes. The source may be shut down by now, so a failed check is reported and does not stop the
 * commit.
 */
async function reportLateWrites({ peers, runs }: SyncSession, commit: CommitParts): Promise<void> {
  const { quietUntil, lateWrites } = (await peers.load()).context
  if (quietUntil === null || lateWrites !== null) return
  const signal = AbortSignal.any([runs.signal, AbortSignal.timeout(lateWritesLimitMS)])
  const parts = { ...commit, context: { ...commit.context, signal } }
  const found = await findLateWrites(parts, BigInt(quietUntil)).catch((error): LateWrites => {
    if (runs.signal.aborted) throw error
    return { total: 0, first: [], unchecked: toFailure(error).error }
  })
  await peers.report({ type: 'lateWrites.found', lateWrites: found })
}

/**
 * Undoes the changes of a commit. After an abort it unblocks the source first, because users wait for it. The remaining
 * work of the commit may take a while to end and may block the source again, so the source is unblocked once more
 * afterwards.
 */
async function undo(session: SyncSession, signal: AbortSignal): Promise<CoordinatorReport> {
  const { runs, peers } = session
  const { ended } = runs
  const isAborted = peers.sync.matches('undoing')
  const { aborts } = peers.sync.context
  const run = (async () => {
    await session.hold()
    if (isAborted) await session.unblockSource(signal)
    await ended
    session.commit.timing.reset()
    if (signal.aborted) throw new StoppedError()
    // Unblock before any other step that may fail.
    if (isAborted) await session.unblockSource(signal)
    const current = await session.read(signal)
    await current.undoPreparation()
  })()
  runs.awaitBeforeNext(run)
  await run
  return { type: 'commit.undone', aborts }
}

/** Second half of a reversal: prepares the new destination. */
async function prepareDestination(session: SyncSession, signal: AbortSignal): Promise<CoordinatorReport> {
  let converges = false
  await alone(session, signal, async () => {
    // From here on, writes on both clusters are fenced by the lease of this direction.
    session.source.fence = () => session.lease.fence()
    session.source.sessions = null
    converges = await (await session.load()).prepareDestination()
  })
  if (converges) session.context.journal?.('convergence requested', { all: true })
  return { type: 'reversal.prepared', converges }
}
