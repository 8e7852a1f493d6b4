import { createActor, createMachine } from 'xstate'
import type { WorkerReport } from '../../machines/protocol.ts'
import type { CollectionCopy } from '../../src/copy/collection-copy.ts'
import type { Catalog } from '../../src/domain/catalog.ts'
import { withCopyActors } from '../../src/session/copy-actors.ts'
import type { SyncSession } from '../../src/session/sync-session.ts'
import type { Throttle } from '../../src/throttle/throttle.ts'

/** The members of a session that the copy uses, so that the compiler notices when one of them is renamed. */
type UsedOfSession = Partial<Record<keyof SyncSession, unknown>> & {
  runs: Partial<Record<keyof SyncSession['runs'], unknown>>
  verification: Partial<Record<keyof SyncSession['verification'], unknown>>
}

/** Runs a copy as an instance does, until it reports its end. */
export async function runCopy(copy: CollectionCopy, catalog: Catalog, throttle: Throttle): Promise<WorkerReport> {
  const replication = { copy, catalog }
  const used = {
    throttle,
    open: async () => replication,
    leaveReplication: () => {},
    runs: { current: replication, awaitBeforeNext: () => {} },
    verification: { copied: () => {} },
    figures: { roundTrips: { fastestMS: { source: 0, destination: 0 } } },
  } satisfies UsedOfSession
  const session = used as unknown as SyncSession
  const report = await new Promise<WorkerReport>((resolve) => {
    const instance = createMachine({
      invoke: { src: withCopyActors(() => session) },
      on: { '*': { actions: ({ event }) => resolve(event as WorkerReport) } },
    })
    createActor(instance).start()
  })
  await copy.close()
  return report
}
