import type { Failure } from '../src/domain/errors.ts'
import type { Limits } from '../src/domain/limits.ts'
import type { StartConfiguration } from '../src/domain/start-request.ts'
import type { SyncView } from './sync-view.ts'

/** Commands of the operator, named in the imperative. */
export type SyncCommand =
  | { type: 'sync.start'; configuration: StartConfiguration }
  | { type: 'sync.pause' }
  | { type: 'sync.resume' }
  /** Accepted until the commit is decided. The abort is stored, and all instances follow the stored state. */
  | { type: 'sync.abort' }
  /** Sent once the request is stored for all instances. `InstanceContext` explains the fields. */
  | { type: 'sync.commit'; abortsBefore: number; commitUntil: number | null; dryRun: boolean }
  | { type: 'sync.reverse' }
  | { type: 'sync.limit'; limits: Limits }

/** Reports of the workers, named in the past tense. */
export type WorkerReport =
  | { type: 'copy.completed' }
  | { type: 'copy.drained' }
  | { type: 'events.drained' }
  | { type: 'verification.initiallyVerified' }
  | { type: 'verification.restarted' }
  /** All events up to the commit timestamp are applied. */
  | { type: 'events.reached' }
  | { type: 'worker.failed'; failure: Failure }
  /**
   * This instance was evicted: the lease expired, and the other instances have taken over its work. It continues in a
   * new lease term.
   */
  | { type: 'lease.evicted' }
  /** The stored state of the sync as a whole was read. */
  | { type: 'sync.observed'; sync: SyncView }

/**
 * Reports about the replication that the collection copy and event application share. Both workers receive each report.
 */
export type ReplicationReport =
  /** This instance's previous replication has ended, and changes may be applied, so the worker may begin. */
  { type: 'replication.opened' } | { type: 'replication.failed'; error: unknown }

/** Orders of the instance to its workers. */
export type WorkerOrder = { type: 'worker.drain' } | { type: 'worker.drainTo'; commitTimestamp: string }

/** Observations of an instance about the coordinator role and its own lease. */
export type ElectionEvent =
  | {
      /** The stored claim of the coordinator role was read. */
      type: 'coordinator.observed'
      /** mongosyncID of the current or last coordinator; null before the first. */
      holder: string | null
      /** This instance holds the role in its current lease term. */
      mine: boolean
      /** The role was never held, was given back, or is held under a lease term that has expired. */
      vacant: boolean
      /**
       * This instance may hold the role: it is RUNNING, COMMITTING or REVERSING, or no other live instance is in one of
       * these states.
       */
      eligible: boolean
    }
  | { type: 'lease.lost' }

/** A placeholder for work that a machine only names. src/session/ provides the real work. */
export const placeholder = (name: string) => (): never => {
  throw new Error(`${name} is not provided`)
}
