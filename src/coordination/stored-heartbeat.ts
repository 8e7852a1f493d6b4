import * as v from 'valibot'
import { FatalError } from '../domain/errors.ts'
import type { Progress } from '../domain/progress.ts'
import type { InstanceHeartbeat, SeenInstance } from './liveness.ts'

/** Version of a beat as stored. Instances of different versions do not guess at each other's. */
const beatVersion = 1

/** A beat as both stores keep it. Progress is text: its keys are anybody's, and databases treat some of them specially. */
export type StoredHeartbeat = Omit<InstanceHeartbeat, 'progress'> & { schemaVersion: number; progress: string }

const schema = v.object({
  schemaVersion: v.literal(beatVersion),
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
    schemaVersion: beatVersion,
    id,
    incarnation,
    coordinator,
    partitions,
    progress: JSON.stringify(progress),
  }
}

/** `ageMS`: since the beat was stored, by the store's clock. Throws FatalError MetadataVersion for what this version did not write. */
export function seenInstance(stored: unknown, ageMS: number, ttlMS: number): SeenInstance {
  const parsed = v.safeParse(schema, stored)
  if (!parsed.success) {
    const version = isObject(stored) ? String((stored as { schemaVersion?: unknown }).schemaVersion) : 'unknown'
    throw new FatalError(
      'MetadataVersion',
      `another instance of this sync was written by another version of tandem (schema ${version}, this one reads ` +
        `${beatVersion}). Use the same version for all instances.`,
    )
  }
  const { schemaVersion: _, ...beat } = parsed.output
  // A clock set back, or another server's after a failover, must not make anybody younger than new.
  return { ...beat, alive: ageMS < ttlMS, lastSeenSeconds: Math.max(0, ageMS) / 1_000 }
}

/** The same order from every store. */
export function inOrderOfIds(instances: SeenInstance[]): SeenInstance[] {
  return instances.sort((a, b) => (a.id < b.id ? -1 : a.id > b.id ? 1 : 0))
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null
}
