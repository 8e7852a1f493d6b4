import type { Progress } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Mismatch } from '../verify/difference.ts'

/**
 * What the API knows of a sync instance. Commands resolve once they are accepted and durable, and reject with
 * RefusedError (nothing changed). `progress` never touches the network.
 */
export interface Instance {
  progress(): Progress
  start(configuration: StartConfiguration): Promise<void>
  pause(): Promise<void>
  resume(): Promise<void>
  commit(): Promise<void>
  reverse(): Promise<void>
  /** What the last verdict found different, the first thousand of `total`. */
  mismatches(): Promise<{ mismatches: Mismatch[]; total: number }>
  /** Makes what it named equal again from the source; resolves with the number of documents looked at. */
  repair(): Promise<number>
}
