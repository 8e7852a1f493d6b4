import { type Actor, createActor, fromCallback, fromPromise, type SimulatedClock } from 'xstate'
import { instanceMachine } from '../../machines/instance.ts'
import type { InstanceContext } from '../../machines/instance-context.ts'
import type { WorkerOrder, WorkerReport } from '../../machines/protocol.ts'
import type { SyncView } from '../../machines/sync-view.ts'
import { views } from './instance-model.ts'

interface StubPromise {
  id: string
  input: unknown
  resolve: (output: unknown) => void
  reject: (error: unknown) => void
}

interface StubWorker {
  id: string
  orders: WorkerOrder[]
  sendBack: (report: WorkerReport) => void
  copied: boolean
}

/**
 * Replaces the workers of an instance. The stubs follow the workers' protocol, and act only when a test tells them to.
 */
export class StubWorkers {
  readonly actor: Actor<typeof instanceMachine>
  /** The actors that run now. */
  readonly running = new Map<string, StubPromise | StubWorker>()
  /** Ids of actors that were started while an actor with the same id was running. */
  readonly doubled: string[] = []
  /** All orders in the sequence of their arrival, each with the worker that received it. */
  readonly orders: { to: string; order: WorkerOrder }[] = []
  /** The input with which each actor was started. */
  readonly inputs: { id: string; input: unknown }[] = []
  /** The view of the whole sync that the stub of the follower reports. */
  sync: SyncView

  constructor(context: InstanceContext | null = null, sync: SyncView = views.replicating, clock?: SimulatedClock) {
    this.sync = sync
    const promise = (id: string) =>
      fromPromise<never, never>(({ input, signal }) => {
        return new Promise((resolve, reject) => {
          this.inputs.push({ id, input })
          this.#begin({ id, input, resolve: resolve as (output: unknown) => void, reject })
          signal.addEventListener('abort', () => this.running.delete(id))
        })
      })
    const worker = (id: string) =>
      fromCallback<WorkerOrder, never>(({ input, sendBack, receive }) => {
        this.inputs.push({ id, input })
        const stub: StubWorker = { id, orders: [], sendBack: sendBack as StubWorker['sendBack'], copied: false }
        this.#begin(stub)
        receive((order) => {
          this.orders.push({ to: id, order })
          stub.orders.push(order)
          // Like the real worker, a copy that has completed is drained at once.
          if (stub.copied) stub.sendBack({ type: 'copy.drained' })
        })
        return () => this.running.delete(id)
      })
    const machine = instanceMachine.provide({
      actors: {
        collectionCopy: worker('collectionCopy'),
        eventApplication: worker('eventApplication'),
        verification: worker('verification'),
        syncFollower: worker('syncFollower'),
        commitDeadline: worker('commitDeadline'),
        undo: worker('undo'),
        metadataMove: promise('metadataMove'),
        hold: promise('hold'),
        leave: promise('leave'),
      },
    } as never)
    this.actor = createActor(machine, { input: context, ...(clock && { clock }) })
    this.actor.start()
  }

  #begin(stub: StubPromise | StubWorker): void {
    if (this.running.has(stub.id)) this.doubled.push(stub.id)
    this.running.set(stub.id, stub)
  }

  /** Completes what a running actor is doing. Does nothing if the actor does not run or has nothing to complete. */
  async proceed(id: string): Promise<void> {
    const stub = this.running.get(id)
    if (!stub) return
    if ('resolve' in stub) {
      this.running.delete(id)
      stub.resolve(undefined)
    } else if (id === 'collectionCopy') {
      if (stub.orders.length > 0) stub.sendBack({ type: 'copy.drained' })
      else if (!stub.copied) {
        stub.copied = true
        stub.sendBack({ type: 'copy.completed' })
      }
    } else if (id === 'syncFollower') {
      stub.sendBack({ type: 'sync.observed', sync: this.sync })
    } else if (id === 'verification') {
      // Like the real verification, it begins when the copy has ended.
      if (this.actor.getSnapshot().context.copyCompleted) stub.sendBack({ type: 'verification.initiallyVerified' })
    } else if (id === 'eventApplication') {
      const last = stub.orders.at(-1)
      if (last) stub.sendBack({ type: last.type === 'worker.drain' ? 'events.drained' : 'events.reached' })
    }
    await settle()
  }

  async fail(id: string): Promise<void> {
    const stub = this.running.get(id)
    if (!stub) return
    if ('resolve' in stub) {
      this.running.delete(id)
      stub.reject(new Error(`${id} failed`))
    } else {
      stub.sendBack({ type: 'worker.failed', failure: { error: 'DuplicateKey', errorDescription: id } })
    }
    await settle()
  }
}

/** Promises of the machine settle over several turns of the microtask queue. */
export async function settle(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve))
}
