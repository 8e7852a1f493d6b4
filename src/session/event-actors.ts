import { fromCallback, fromPromise } from 'xstate'
import { eventApplicationMachine } from '../../machines/event-application.ts'
import type { OwnedPartitions } from '../apply/owned-partitions.ts'
import { assert } from '../domain/errors.ts'
import type { Replication } from './replication.ts'
import { failureToReport } from './supervise-work.ts'
import type { SyncSession } from './sync-session.ts'

/** The machine of event application with the actors that do its work, which is in src/apply. */
export function withEventActors(work: () => SyncSession): typeof eventApplicationMachine {
  const replication = (): Replication => {
    const { present } = work().runs
    assert(present, 'events are applied without a replication')
    return present
  }
  const events = (): OwnedPartitions => {
    const { events } = replication()
    assert(events, 'events are to be applied before they were prepared')
    return events
  }
  return eventApplicationMachine.provide({
    actors: {
      replication: fromCallback(({ sendBack }) => {
        const session = work()
        const opened = session.open('events')
        // Awaited before the next replication begins: leaving the machine drains, but does not await it.
        session.runs.joined(opened.then((current) => current.eventsEnded))
        opened.then(
          () => sendBack({ type: 'replication.opened' }),
          (error) => sendBack({ type: 'replication.failed', error }),
        )
        return () => {
          opened.then((current) => current.closeEvents()).catch(() => {})
          session.left(opened)
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
        const closing = work().runs.present?.closeEvents()
        const failure = (await closing) ?? input.error
        return failure ? await failureToReport(work(), failure) : null
      }),
    },
    actions: {
      limitToCommitPoint: ({ context }) => events().drainTo(BigInt(context.commitPoint ?? 0)),
    },
  })
}
