import type { Progress } from '../domain/progress.ts'

/** What an instance says of itself with each beat. */
export interface InstanceHeartbeat {
  /** mongosyncID. */
  id: string
  /** One per process. */
  incarnation: string
  /** Whether it leads, as it believes itself. */
  coordinator: boolean
  /** The partitions it applies events of. */
  partitions: number[]
  progress: Progress
}

export interface SeenInstance extends InstanceHeartbeat {
  /** False once nothing has been heard for `ttlMS`, by the store's own clock. */
  alive: boolean
  /** Since its last beat, with a fraction, by the store's own clock. */
  lastSeenSeconds: number
}

/**
 * Who is there, and how far each has come: the one thing that instances tell each other often, and that may be lost at
 * any time. It decides who is *believed* to be alive; what is true (who owns what, under which epoch) is decided in the
 * metadata database alone, so a store that lies, is flushed or goes away can delay a sync but never corrupt it.
 *
 * All methods reject with an error when the store does not answer within a few seconds; a later call may succeed again.
 */
export interface Liveness {
  /** An instance that is not heard of for this long counts as lost, ms. */
  readonly ttlMS: number
  /** Stores this instance's beat in place of its last one. One row per mongosyncID: a restarted process replaces its predecessor. */
  publish(beat: InstanceHeartbeat): Promise<void>
  /** Every instance ever seen in this sync and not forgotten, in the order of their ids. */
  instances(): Promise<SeenInstance[]>
  /** Removes the row: the instance has left for good. A beat still under way may put it back, so the last one is awaited first. */
  forget(id: string): Promise<void>
  /** Asks the others to look at once; best effort, never rejects. */
  notify(): void
  /** Called when another instance notified. Without pub/sub never: who waits for something polls as well. */
  onNotified: (() => void) | null
  close(): Promise<void>
}
