import { fromCallback, fromPromise } from 'xstate'
import { eventApplicationMachine } from '../../machines/event-application.ts'
import type { OwnedPartitions } from '../apply/owned-partitions.ts'
import { assert } from '../domain/errors.ts'
import type { Replication } from './replication.ts'
import { failureToReport } from './supervise-work.ts'
import type { SyncSession } from './sync-session.ts'

/** The event application machine with the actors that do its work. src/apply contains that work. */
export function withEventActors(current: () => SyncSession): typeof eventApplicationMachine {
  const replication = (): Replication => {
    const { current: running } = current().runs
    assert(running, 'events are applied without a replication')
    return running
  }
  const events = (): OwnedPartitions => {
    const { events } = replication()
    assert(events, 'events are to be applied before they were prepared')
    return events
  }
  return eventApplicationMachine.provide({
    actors: {
      replication: fromCallback(({ sendBack }) => {
        const session = current()
        const opened = session.open('events')
        // When the state machine stops, it begins to close event application but does not wait for the end. The next
        // replication must wait for that end.
        session.runs.awaitBeforeNext(opened.then((replication) => replication.eventsEnded))
        opened.then(
          () => sendBack({ type: 'replication.opened' }),
          (error) => sendBack({ type: 'replication.failed', error }),
        )
        return () => {
          opened.then((replication) => replication.closeEvents()).catch(() => {})
          session.leaveReplication(opened)
        }
      }),
      barriers: fromPromise(() => replication().leadBarriers()),
      claim: fromPromise(() => events().claim()),
      apply: fromCallback(({ sendBack }) => {
        events()
          .apply(() => sendBack({ type: 'partitions.answered' }))
          .then(() => sendBack({ type: 'partitions.left' }))
          .catch((error) => sendBack({ type: 'partitions.failed', error }))
      }),
      pass: fromPromise(() => events().pass()),
      change: fromPromise(() => events().change()),
      close: fromPromise(async ({ input }) => {
        const closing = current().runs.current?.closeEvents()
        const failure = (await closing) ?? input.error
        return failure ? await failureToReport(current(), failure) : null
      }),
    },
    actions: {
      limitToCommitTimestamp: ({ context }) => events().drainTo(BigInt(context.commitTimestamp ?? 0)),
    },
  })
}
