import type { Failure } from '../src/domain/errors.ts'
import type { StartConfiguration } from '../src/domain/start-request.ts'

/** Commands of the operator, in the imperative. */
export type SyncCommand =
  | { type: 'sync.start'; configuration: StartConfiguration }
  | { type: 'sync.pause' }
  | { type: 'sync.resume' }
  | { type: 'sync.commit' }
  | { type: 'sync.reverse' }

/** What workers report, in the past tense. */
export type WorkerReport =
  | { type: 'copy.completed' }
  | { type: 'copy.drained' }
  | { type: 'events.drained' }
  | { type: 'verification.hashed' }
  | { type: 'verification.restarted' }
  | { type: 'events.reached' }
  | { type: 'worker.failed'; failure: Failure }

/** What the instance tells its workers. */
export type WorkerOrder = { type: 'worker.drain' } | { type: 'worker.drainTo'; commitPoint: string }

export type LeaseEvent =
  | { type: 'lease.lost'; holder: string | null }
  | { type: 'lease.resign' }
  | { type: 'lease.campaign' }
