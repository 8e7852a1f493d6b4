import type { Failure } from '../src/domain/errors.ts'
import type { Limits } from '../src/domain/limits.ts'
import type { StartConfiguration } from '../src/domain/start-request.ts'
import type { SyncView } from './sync-view.ts'

/** Commands of the operator, in the imperative. */
export type SyncCommand =
  | { type: 'sync.start'; configuration: StartConfiguration }
  | { type: 'sync.pause' }
  | { type: 'sync.resume' }
  /** Accepted before the decision; what it asks for is stored for all instances, and followed from there. */
  | { type: 'sync.abort' }
  /** Accepted once what it asks for is stored for all instances; its fields are explained in `InstanceContext`. */
  | { type: 'sync.commit'; abortsBefore: number; commitUntil: number | null; dryRun: boolean }
  | { type: 'sync.reverse' }
  | { type: 'sync.limit'; limits: Limits }

/** What workers report, in the past tense. */
export type WorkerReport =
  | { type: 'copy.completed' }
  | { type: 'copy.drained' }
  | { type: 'events.drained' }
  | { type: 'verification.hashed' }
  | { type: 'verification.restarted' }
  | { type: 'events.reached' }
  | { type: 'worker.failed'; failure: Failure }
  /** The lease expired and the others have taken over what this instance had; it comes back as a new one. */
  | { type: 'lease.buried' }
  /** How the sync as a whole is now. */
  | { type: 'sync.seen'; sync: SyncView }

/** What the instance tells its workers. */
export type WorkerOrder = { type: 'worker.drain' } | { type: 'worker.drainTo'; commitPoint: string }

/** What an instance sees of the coordinator's office and of its own lease. */
export type ElectionEvent =
  | {
      type: 'office.seen'
      /** mongosyncID of who holds it, or held it last; null before anybody did. */
      holder: string | null
      /** Held by this instance, in its present life. */
      mine: boolean
      /** Never held, given back, or held by a life that is over. */
      vacant: boolean
      /** This instance may hold it: it is at work, or no other one is. */
      eligible: boolean
    }
  | { type: 'lease.lost' }
