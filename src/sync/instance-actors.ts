import { fromCallback, fromPromise } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import { AbortedError, PassedError, RenewedError } from '../coordination/team.ts'
import { StoppedError } from '../domain/errors.ts'
import { superviseCopy, superviseEvents, superviseVerification, watchCommit } from './supervise-work.ts'
import type { SyncWork } from './sync-work.ts'

export interface InstanceActorsParts {
  work: () => SyncWork
  /** Resolves when everything that was left has ended. */
  ended: () => Promise<unknown>
  /** Resolves when what the machine has come to is stored. */
  storing: () => Promise<void>
  turnAround: (left: AbortSignal) => Promise<void>
  report: (report: WorkerReport) => void
}

/** The instance machine with everything it invokes: which work each of its states is. */
export function withActors({ work, ended, storing, turnAround, report }: InstanceActorsParts): typeof instanceMachine {
  /** Steps of a commit begin when the state that announces them is stored: a restart must know what it may find done. */
  const onceStored = async <T>(left: AbortSignal, step: () => Promise<T>): Promise<T> => {
    await new Promise((resolve) => setImmediate(resolve))
    // An instance that was buried stores nothing before it has its lease again, by which its last life could write as well.
    await ended()
    if (left.aborted) throw new StoppedError()
    await work().lead()
    await storing()
    try {
      return await step()
    } catch (error) {
      // Of a commit that this instance has left it is no news, and another one may have begun.
      if (left.aborted) throw new StoppedError()
      if (error instanceof RenewedError) report({ type: 'commit.renewed' })
      else if (error instanceof PassedError) report({ type: 'commit.passed' })
      else if (error instanceof AbortedError) report({ type: 'commit.aborted', abortsBefore: error.abortsBefore })
      else throw error
      return await new Promise(() => {}) // the machine has left the state that waits for this
    }
  }
  return instanceMachine.provide({
    actors: {
      initialisation: fromPromise(({ signal }) => work().initialise(signal)),
      collectionCopy: fromCallback(({ input, sendBack, receive }) =>
        superviseCopy(work(), input.commitBegun, sendBack, receive),
      ),
      eventApplication: fromCallback(({ input, sendBack, receive }) =>
        superviseEvents(work(), input.commitBegun, sendBack, receive),
      ),
      verification: fromCallback(({ sendBack }) => superviseVerification(work(), sendBack)),
      commitWatch: fromCallback(({ input, sendBack }) => watchCommit(work(), input, sendBack)),
      commitPoint: fromPromise(({ input, signal }) =>
        onceStored(signal, () => work().commit.commitPoint(input.abortsBefore, signal)),
      ),
      preparation: fromPromise(({ input, signal }) =>
        onceStored(signal, () => work().commit.prepareToWrite(input, signal)),
      ),
      verdict: fromPromise(({ input, signal }) => onceStored(signal, () => work().commit.verdict(input, signal))),
      decision: fromPromise(({ input, signal }) => onceStored(signal, () => work().commit.decide(input, signal))),
      opening: fromPromise(({ signal }) => onceStored(signal, () => work().commit.open(signal))),
      indexConversion: fromPromise(({ signal }) => onceStored(signal, () => work().commit.finishIndexes(signal))),
      metadataMove: fromPromise(({ signal }) => onceStored(signal, () => turnAround(signal))),
      adaptation: fromPromise(({ signal }) => onceStored(signal, () => work().adapt(signal))),
    },
  })
}
