import { fromCallback, fromPromise } from 'xstate'
import { collectionCopyMachine } from '../../machines/collection-copy.ts'
import type { CollectionCopy } from '../copy/collection-copy.ts'
import { assert } from '../domain/errors.ts'
import { failureToReport } from './supervise-work.ts'
import type { SyncSession } from './sync-session.ts'

/** The collection copy machine with the actors that do its work. src/copy contains that work. */
export function withCopyActors(current: () => SyncSession): typeof collectionCopyMachine {
  const copy = (): CollectionCopy => {
    const { current: running } = current().runs
    assert(running?.copy, 'a copy is under way without a replication')
    return running.copy
  }
  return collectionCopyMachine.provide({
    actors: {
      replication: fromCallback(({ sendBack }) => {
        const session = current()
        const { runs, throttle } = session
        const reportLimits = (): void => sendBack({ type: 'limits.changed', atOnce: throttle.segmentsAtOnce })
        const unsubscribe = throttle.onChanged(reportLimits)
        const opened = session.open('copy')
        // When the state machine stops, it closes this copy but does not wait for the end of the copy. The next
        // replication must wait for that end.
        runs.awaitBeforeNext(opened.then((replication) => replication.copy?.over))
        opened.then(
          () => {
            reportLimits()
            sendBack({ type: 'replication.opened' })
          },
          (error) => sendBack({ type: 'replication.failed', error }),
        )
        return () => {
          unsubscribe()
          opened.then((replication) => replication.copy?.close()).catch(() => {})
          session.leaveReplication(opened)
        }
      }),
      begin: fromPromise(() => copy().begin(() => current().figures.roundTrips.fastestMS)),
      survey: fromPromise(() => copy().survey()),
      plan: fromPromise(() => copy().plan()),
      claim: fromPromise(() => copy().claim()),
      segment: fromCallback(({ input: { id, collection }, sendBack }) => {
        const progressed = (bytes: number): void => sendBack({ type: 'segment.progressed', collection, bytes })
        copy()
          .copy(id, progressed)
          .then((copied) => sendBack({ type: copied ? 'segment.copied' : 'segment.dropped', id }))
          .catch((error) => sendBack({ type: 'segment.failed', id, error }))
      }),
      endCopies: fromPromise(() => copy().endCopies()),
      finish: fromPromise(async () => {
        await copy().finish()
        current().verification.copied()
      }),
      close: fromPromise(async ({ input }) => {
        const closing = current().runs.current?.copy?.close(input.error)
        const failure = closing ? await closing : input.error
        return failure ? await failureToReport(current(), failure) : null
      }),
    },
    actions: {
      recordProgress: ({ event }) => {
        if (event.type !== 'segment.progressed') return
        const entry = current().runs.current?.catalog.get(event.collection)
        if (entry) entry.copiedBytes += event.bytes
      },
    },
  })
}
