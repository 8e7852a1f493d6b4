import * as v from 'valibot'
import { FatalError } from '../domain/errors.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Progress } from '../domain/progress.ts'
import type { InstanceHeartbeat, ObservedInstance } from './liveness.ts'

/** Version of a stored heartbeat. An instance rejects heartbeats of any other version. */
const heartbeatVersion = 1

/**
 * A heartbeat as MongoDB and Redis store it. Progress is JSON text, because users choose some of its keys and databases
 * treat some keys specially.
 */
export type StoredHeartbeat = Omit<InstanceHeartbeat, 'progress'> & { schemaVersion: number; progress: string }

const schema = v.object({
  schemaVersion: v.literal(heartbeatVersion),
  id: v.string(),
  incarnation: v.string(),
  coordinator: v.boolean(),
  partitions: v.array(v.number()),
  progress: v.pipe(v.string(), v.parseJson(), v.custom<Progress>(isObject)),
})

export function storedHeartbeat({
  id,
  incarnation,
  coordinator,
  partitions,
  progress,
}: InstanceHeartbeat): StoredHeartbeat {
  return {
    schemaVersion: heartbeatVersion,
    id,
    incarnation,
    coordinator,
    partitions,
    progress: JSON.stringify(progress),
  }
}

/**
 * Parses a stored heartbeat. Throws FatalError MetadataVersion if it does not have the form of `heartbeatVersion`.
 * @param heartbeatTime when the store received it
 * @param ageMS time since the heartbeat was stored, by the store's clock
 */
export function observedInstance(
  stored: unknown,
  heartbeatTime: string,
  ageMS: number,
  ttlMS: number,
): ObservedInstance {
  const parsed = v.safeParse(schema, stored)
  if (!parsed.success) {
    const version = isObject(stored) ? String((stored as { schemaVersion?: unknown }).schemaVersion ?? 'none') : 'none'
    throw new FatalError(
      'MetadataVersion',
      `reading the heartbeats of the other instances: one cannot be read (schema version ${version}; this version of tandem reads ` +
        `${heartbeatVersion}). Use the same version for all instances. ${notLost.progress}`,
    )
  }
  const { schemaVersion: _, ...heartbeat } = parsed.output
  // The age is negative after a clock was set back, or after a failover to a server whose clock is behind.
  return { ...heartbeat, alive: ageMS < ttlMS, lastSeenSeconds: Math.max(0, ageMS) / 1_000, heartbeatTime }
}

/** Sorts by id, so that every store returns the same order. */
export function inOrderOfIds(instances: ObservedInstance[]): ObservedInstance[] {
  return instances.sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0))
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null
}
