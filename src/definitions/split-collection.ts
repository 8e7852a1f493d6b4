import { setTimeout as sleep } from 'node:timers/promises'
import { MongoServerError } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { KeyValues } from '../domain/choose-chunks.ts'
import { assert } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import type { ShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { type Chunk, readChunks } from '../mongo/config-database.ts'
import { code, codeOf, isTransient, ranOutOfTime } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import { minKey } from './sample-keys.ts'

/** The destination's collection, whose chunks are split and moved. Every method may be repeated. */
export class SplitCollection {
  readonly #destination: Cluster
  readonly #entry: CatalogEntry
  readonly #name: string
  readonly #key: ShardKey

  constructor(destination: Cluster, entry: CatalogEntry, key: ShardKey) {
    this.#destination = destination
    this.#entry = entry
    this.#name = namespace(entry.database, entry.name)
    this.#key = key
  }

  async chunks(): Promise<Chunk[]> {
    assert(this.#entry.destinationUUID, 'a collection that has not been created has no chunks')
    return await readChunks(this.#destination, this.#entry.destinationUUID)
  }

  /** Null is the lower bound of the first chunk, which needs no split. */
  async split(at: KeyValues | null): Promise<void> {
    if (at === null) return
    const command = { split: this.#name, middle: this.#bound(at) }
    await unlessRefused(this.#destination.write('admin', command, { withoutWriteConcern: true }))
  }

  async move({ min, max, shard }: Chunk, to: string): Promise<void> {
    if (shard === to) return
    const bounds = [this.#bound(min.map(({ value }) => value)), this.#bound(max.map(({ value }) => value))]
    // The chunk is empty, so its move usually takes less than the time limit of a write.
    const move = () => this.#destination.write('admin', { moveChunk: this.#name, bounds, to })
    await unlessRefused(whenFree(move))
  }

  #bound(values: KeyValues): Map<string, RawValue> {
    return new Map(this.#key.map(({ path }, at) => [path, new RawValue(values[at] ?? minKey)]))
  }
}

/** Repeats a move that exceeds its time limit, or that a shard refuses because another chunk move is not finished. */
async function whenFree(move: () => Promise<unknown>): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    try {
      await move()
      return
    } catch (error) {
      const mayPass = codeOf(error) === code.conflictingOperationInProgress || ranOutOfTime(error)
      if (!mayPass || attempt === moveAttemptsMax) throw error
      await sleep(moveAgainMS)
    }
  }
}

const moveAttemptsMax = 50
const moveAgainMS = 50

/**
 * Ignores errors of the server. It refuses to split at the minimum key or at an existing chunk boundary, and it may
 * refuse to move a chunk. Some of these errors have no code. Transient errors are thrown.
 */
async function unlessRefused(work: Promise<unknown>): Promise<void> {
  try {
    await work
  } catch (error) {
    if (!(error instanceof MongoServerError) || isTransient(error)) throw error
  }
}
