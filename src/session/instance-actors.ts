import { fromCallback, fromPromise } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { type Failure, StoppedError } from '../domain/errors.ts'
import type { OwnLimit } from './commit-limit.ts'
import { withCopyActors } from './copy-actors.ts'
import { withEventActors } from './event-actors.ts'
import { superviseDeadline, superviseSync, superviseUndo } from './supervise-work.ts'
import type { CommitPart } from './sync-follower.ts'
import type { SyncSession } from './sync-session.ts'
import { withVerificationActors } from './verification-actors.ts'

export interface InstanceActorsParts {
  current: () => SyncSession
  /** How far this instance has come in a commit. */
  part: () => CommitPart
  /** The commit that this instance has received. */
  asked: () => OwnLimit & { dryRun: boolean; failure: Failure | null }
  /** Resolves when the work of all states that the machine has left has ended. */
  ended: () => Promise<unknown>
  /** Resolves when the machine's context is stored. */
  storing: () => Promise<unknown>
  swapDirection: (signal: AbortSignal) => Promise<void>
  report: (report: WorkerReport) => void
}

/** The instance machine with the actors that it invokes, which do the work of its states. */
export function withActors(parts: InstanceActorsParts): typeof instanceMachine {
  const { current, ended, storing, swapDirection, report } = parts
  /** Resolves when the machine has completed its transition, after which its context is being stored. */
  const transitioned = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
  /** Runs a step once the context that announces it is stored, so that a restart knows which step may have begun. */
  const onceStored = async (signal: AbortSignal, step: () => Promise<void>): Promise<void> => {
    await transitioned()
    // An evicted instance stores nothing before it has a lease again. It takes a lease only after the work of its last
    // lease term has ended.
    await ended()
    if (signal.aborted) throw new StoppedError()
    await current().joinElection()
    await storing()
    await step()
  }
  return instanceMachine.provide({
    actors: {
      collectionCopy: withCopyActors(current),
      eventApplication: withEventActors(current),
      verification: withVerificationActors(current),
      syncFollower: fromCallback(({ input }) =>
        superviseSync({ ...parts, session: current(), report }, input.watching),
      ),
      undo: fromCallback(() => superviseUndo({ ...parts, session: current(), report })),
      commitDeadline: fromCallback(({ input }) => superviseDeadline(current(), input)),
      metadataMove: fromPromise(({ signal }) => onceStored(signal, () => swapDirection(signal))),
      hold: fromPromise(async () => {
        await transitioned()
        await ended()
        await current().hold()
      }),
      leave: fromPromise(async () => {
        await transitioned()
        await storing()
        await current().resign()
      }),
    },
  })
}
