import type { WorkerOrder, WorkerReport } from '../machines/protocol.ts'
import { toFailure } from './domain/errors.ts'
import type { StartConfiguration } from './domain/start-request.ts'
import type { SyncWork } from './sync-work.ts'

/** The workers that the machine invokes for as long as a state lasts: they run, obey orders and report. */

type Report = (report: WorkerReport) => void
type Receive = (listener: (order: WorkerOrder) => void) => void

/** Runs the collection copy for as long as the machine replicates and reports its end. */
export function superviseCopy(work: SyncWork, commitBegun: boolean, sendBack: Report, receive: Receive): () => void {
  let completed = false
  let drainAsked = false
  const replication = work.replication(commitBegun)
  const run = replication.then(async ({ copy }) => {
    if (drainAsked) copy?.drain()
    completed = (await copy?.run()) ?? false
    if (completed) {
      work.verification.copied()
      sendBack({ type: 'copy.completed' })
    }
    if (drainAsked) sendBack({ type: 'copy.drained' })
  })
  work.joined(run)
  run.catch((error) => sendBack({ type: 'worker.failed', failure: toFailure(error) }))
  receive(() => {
    drainAsked = true
    if (completed) sendBack({ type: 'copy.drained' })
    else replication.then(({ copy }) => copy?.drain()).catch(() => {})
  })
  return () => {
    replication.then(({ copy }) => copy?.drain()).catch(() => {})
    work.left()
  }
}

/** Runs the event application for as long as the machine replicates and reports when it has drained. */
export function superviseEvents(work: SyncWork, commitBegun: boolean, sendBack: Report, receive: Receive): () => void {
  let commitPoint: bigint | null = null
  const replication = work.replication(commitBegun)
  const run = replication.then(async ({ events }) => {
    await events?.run()
    sendBack({ type: commitPoint === null ? 'events.drained' : 'events.reached' })
  })
  work.joined(run)
  run.catch((error) => sendBack({ type: 'worker.failed', failure: toFailure(error) }))
  receive((order) => {
    if (order.type === 'worker.drainTo') commitPoint = BigInt(order.commitPoint)
    replication
      .then(({ events }) => (commitPoint === null ? events?.drain() : events?.drainTo(commitPoint)))
      .catch(() => {})
  })
  return () => {
    replication.then(({ events }) => events?.drain()).catch(() => {})
    work.left()
  }
}

/** The embedded verifier, for as long as there is a sync to verify. */
export function superviseVerification(work: SyncWork, configuration: StartConfiguration, sendBack: Report): () => void {
  const run = work.verification.run(configuration, (what) => sendBack({ type: `verification.${what}` }))
  run.catch((error) => sendBack({ type: 'worker.failed', failure: toFailure(error) }))
  return () => void work.verification.stop()
}
