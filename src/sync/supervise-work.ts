import { setTimeout as sleep } from 'node:timers/promises'
import type { CommitWatchInput } from '../../machines/instance-context.ts'
import type { WorkerOrder, WorkerReport } from '../../machines/protocol.ts'
import { PassedError } from '../coordination/team.ts'
import { FatalError, StoppedError, toFailure } from '../domain/errors.ts'
import type { SyncWork } from './sync-work.ts'

/** The workers that the machine invokes for as long as a state lasts: they run, obey orders and report. */

const watchAgainMS = 500

type Report = (report: WorkerReport) => void
type Receive = (listener: (order: WorkerOrder) => void) => void

/** Runs the collection copy for as long as the machine replicates and reports its end. */
export function superviseCopy(work: SyncWork, commitBegun: boolean, sendBack: Report, receive: Receive): () => void {
  let completed = false
  let drainAsked = false
  const replication = work.replication.open(commitBegun)
  const run = replication.then(async ({ copy }) => {
    if (drainAsked) copy?.drain()
    completed = (await copy?.run()) ?? false
    if (completed) {
      work.verification.copied()
      sendBack({ type: 'copy.completed' })
    }
    if (drainAsked) sendBack({ type: 'copy.drained' })
  })
  work.replication.joined(run)
  run.catch((error) => tell(work, error, sendBack))
  receive(() => {
    drainAsked = true
    if (completed) sendBack({ type: 'copy.drained' })
    else replication.then(({ copy }) => copy?.drain()).catch(() => {})
  })
  return () => {
    replication.then(({ copy }) => copy?.drain()).catch(() => {})
    work.replication.left()
  }
}

/** Runs the event application for as long as the machine replicates and reports when it has drained. */
export function superviseEvents(work: SyncWork, commitBegun: boolean, sendBack: Report, receive: Receive): () => void {
  let commitPoint: bigint | null = null
  const replication = work.replication.open(commitBegun)
  const run = replication.then(async (current) => {
    await current.applyEvents()
    sendBack({ type: commitPoint === null ? 'events.drained' : 'events.reached' })
  })
  work.replication.joined(run)
  run.catch((error) => tell(work, error, sendBack))
  receive((order) => {
    if (order.type === 'worker.drainTo') commitPoint = BigInt(order.commitPoint)
    replication
      .then(({ events }) => (commitPoint === null ? events?.drain() : events?.drainTo(commitPoint)))
      .catch(() => {})
  })
  return () => {
    replication.then(({ events }) => events?.drain()).catch(() => {})
    work.replication.left()
  }
}

/** Beside a commit that can still be aborted: reports an abort, whichever instance asked for it, and aborts when its time is over. */
export function watchCommit(work: SyncWork, input: CommitWatchInput, sendBack: Report): () => void {
  const { abortsBefore, commitUntil, failure } = input
  const left = new AbortController()
  const watch = async (): Promise<void> => {
    while (!left.signal.aborted) {
      try {
        if (await work.team.aborted(abortsBefore, left.signal)) sendBack({ type: 'commit.aborted', abortsBefore })
        return
      } catch (error) {
        // The lease is lost, and is taken again by what the machine does then; an abort may come meanwhile.
        if (!(error instanceof StoppedError)) throw error
        await sleep(watchAgainMS, undefined, { signal: left.signal }).catch(() => {})
      }
    }
  }
  watch().catch((error) => tell(work, error, sendBack))
  const expire = (): void => {
    const why = failure
      ? `it had failed with ${failure.error}: ${failure.errorDescription}`
      : `it waited for ${work.commit.waitingFor}`
    const abortReason = `the commit was aborted by its maxSeconds: ${why}`
    work.team.abort(abortsBefore, { abortReason }).catch((error) => tell(work, error, sendBack))
  }
  const timer = commitUntil === null ? null : setTimeout(expire, Math.max(0, commitUntil - Date.now()))
  return (): void => {
    left.abort()
    if (timer) clearTimeout(timer)
  }
}

/** The embedded verifier, for as long as there is a sync to verify. */
export function superviseVerification(work: SyncWork, sendBack: Report): () => void {
  const stopped = new AbortController()
  const run = work.verify((what) => sendBack({ type: `verification.${what}` }), stopped.signal)
  run.catch((error) => tell(work, error, sendBack))
  return () => stopped.abort()
}

/** A failure that only says that this instance was taken over is told by the loss of its lease, which asks for something else. */
async function tell(work: SyncWork, error: unknown, sendBack: Report): Promise<void> {
  if (error instanceof StoppedError) return
  if (error instanceof PassedError) return sendBack({ type: 'commit.passed' })
  if (error instanceof FatalError && error.failure === 'LeaseLost') {
    await work.lease.verify()
    if (!work.lease.held) return
  }
  if (!(error instanceof FatalError)) work.logFault(error)
  sendBack({ type: 'worker.failed', failure: toFailure(error) })
}
