import type { Progress } from '../domain/progress.ts'
import type { RoundPart } from './round-parts.ts'

/** What an instance reports about itself with each heartbeat. */
export interface InstanceHeartbeat {
  /** mongosyncID. */
  id: string
  /** Identifies the process. */
  incarnation: string
  /** True if the instance had the coordinator role when it sent the heartbeat. */
  coordinator: boolean
  /** The partitions whose events it applies. */
  partitions: number[]
  progress: Progress
}

export interface ObservedInstance extends InstanceHeartbeat {
  /** False when the last heartbeat is older than `ttlMS` by the store's clock. */
  alive: boolean
  /** Seconds since the last heartbeat, with a fraction, by the store's clock. */
  lastSeenSeconds: number
  /** When the store received the last heartbeat. Each heartbeat changes it. */
  heartbeatTime: string
}

/**
 * The store of the heartbeats, in Redis or in the metadata database. Heartbeats show which instances exist, and the
 * progress of each. They are written often and may be lost at any time. They decide only which instances are considered
 * alive. The metadata database alone decides which instance owns the coordinator role and each partition, so a store
 * that answers wrongly, is flushed or becomes unreachable can delay a sync but never corrupt it.
 *
 * All methods reject with an error when the store does not answer within a few seconds; a later call may succeed again.
 */
export interface Liveness {
  /** An instance that sends no heartbeat for this long counts as lost, ms. */
  readonly ttlMS: number
  /**
   * Replaces this instance's last heartbeat. There is one row per mongosyncID, so a restarted process replaces its
   * predecessor.
   */
  publish(heartbeat: InstanceHeartbeat): Promise<void>
  /** Returns every instance that has sent a heartbeat in this sync and was not removed by `remove`, ordered by id. */
  instances(): Promise<ObservedInstance[]>
  /**
   * Reads the heartbeats as a part of each round of the coordination. Null for a store other than the metadata database.
   */
  readonly inRounds: RoundPart | null
  /** What the last round has read, if it read within the last `maxAgeMS`; otherwise null. Throws like `instances`. */
  recentInstances(maxAgeMS: number): ObservedInstance[] | null
  /**
   * Removes the row of an instance that has left for good. A heartbeat that is still under way could insert it again,
   * so the caller awaits the last one first.
   */
  remove(id: string): Promise<void>
  /** Wakes the other instances, so that they read the ownership at once. A notification may be lost. Never throws. */
  notify(): void
  /** Called when another instance notifies. A store without pub/sub never calls it, so callers must also poll. */
  onNotified: (() => void) | null
  close(): Promise<void>
}
