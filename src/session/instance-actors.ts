import { fromCallback, fromPromise } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { StoppedError } from '../domain/errors.ts'
import {
  superviseCopy,
  superviseDeadline,
  superviseEvents,
  superviseRest,
  superviseSync,
  superviseVerification,
} from './supervise-work.ts'
import type { CommitPart } from './sync-follower.ts'
import type { SyncWork } from './sync-work.ts'

export interface InstanceActorsParts {
  work: () => SyncWork
  /** Where this instance is in a commit. */
  part: () => CommitPart
  /** The commit that this instance was asked for. */
  asked: () => { abortsBefore: number; dryRun: boolean }
  /** Resolves when everything that was left has ended. */
  ended: () => Promise<unknown>
  /** Resolves when what the machine has come to is stored. */
  storing: () => Promise<void>
  swapDirection: (left: AbortSignal) => Promise<void>
  report: (report: WorkerReport) => void
}

/** The instance machine with everything it invokes: which work each of its states is. */
export function withActors(parts: InstanceActorsParts): typeof instanceMachine {
  const { work, ended, storing, swapDirection: turnAround, report } = parts
  /** Once the machine has settled in the state that asks for it, which is stored a moment later. */
  const settled = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))
  /** What a state announces begins when that is stored: a restart must know what it may find done. */
  const onceStored = async (left: AbortSignal, step: () => Promise<void>): Promise<void> => {
    await settled()
    // An instance that was buried stores nothing before it has its lease again, by which its last life could write as well.
    await ended()
    if (left.aborted) throw new StoppedError()
    await work().lead()
    await storing()
    await step()
  }
  return instanceMachine.provide({
    actors: {
      collectionCopy: fromCallback(({ sendBack, receive }) => superviseCopy(work(), sendBack, receive)),
      eventApplication: fromCallback(({ sendBack, receive }) => superviseEvents(work(), sendBack, receive)),
      verification: fromCallback(({ sendBack }) => superviseVerification(work(), sendBack)),
      syncFollower: fromCallback(({ input }) => superviseSync({ ...parts, work: work(), report }, input.watching)),
      undo: fromCallback(() => superviseRest({ ...parts, work: work(), report })),
      commitDeadline: fromCallback(({ input, sendBack }) => superviseDeadline(work(), input, sendBack)),
      metadataMove: fromPromise(({ signal }) => onceStored(signal, () => turnAround(signal))),
      hold: fromPromise(async () => {
        await settled()
        await ended()
        await work().hold()
      }),
      leave: fromPromise(async () => {
        await settled()
        await storing()
        await work().resign()
      }),
    },
  })
}
