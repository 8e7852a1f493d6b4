import { setTimeout as sleep } from 'node:timers/promises'
import { MongoServerError, MongoTopologyClosedError } from 'mongodb'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { KeyValues } from '../domain/choose-chunks.ts'
import { assert } from '../domain/errors.ts'
import { namespace } from '../domain/namespace.ts'
import type { ShardKey } from '../domain/shard-key.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { type Chunk, readChunks } from '../mongo/config-database.ts'
import { code, codeOf, isTransient } from '../mongo/errors.ts'
import { RawValue } from '../mongo/raw-values.ts'
import type { PresplitContext } from './presplit.ts'
import { minKey } from './sample-keys.ts'

/**
 * Splits and moves the chunks of one collection of the destination. Every method may be repeated. If a transient error
 * persists, later calls of `split` and `move` do nothing. The error is not thrown, because the caller would then create
 * all collections of the database again.
 */
export class SplitCollection {
  readonly #destination: Cluster
  readonly #entry: CatalogEntry
  readonly #name: string
  readonly #key: ShardKey
  readonly #context: PresplitContext
  #isGivenUp = false

  constructor(destination: Cluster, entry: CatalogEntry, key: ShardKey, context: PresplitContext) {
    this.#destination = destination
    this.#entry = entry
    this.#name = namespace(entry.database, entry.name)
    this.#key = key
    this.#context = context
  }

  async chunks(): Promise<Chunk[]> {
    assert(this.#entry.destinationUUID, 'a collection that has not been created has no chunks')
    return await readChunks(this.#destination, this.#entry.destinationUUID)
  }

  /** Splits the chunk that contains these values. Null means the lower bound of the first chunk, where no split is needed. */
  async split(at: KeyValues | null): Promise<void> {
    if (at === null) return
    const command = { split: this.#name, middle: this.#bound(at) }
    const split = (): Promise<unknown> => this.#destination.write('admin', command, { withoutWriteConcern: true })
    // The server refuses to split at the minimum key or at an existing chunk boundary. Some of these errors have no code.
    await this.#attempt(split, isTransient, () => {})
  }

  async move({ min, max, shard }: Chunk, to: string): Promise<void> {
    if (shard === to) return
    const bounds = [this.#bound(min.map(({ value }) => value)), this.#bound(max.map(({ value }) => value))]
    // The chunk is empty, so its move usually takes less than the time limit of a write.
    const move = (): Promise<unknown> => this.#destination.write('admin', { moveChunk: this.#name, bounds, to })
    // An election on either shard interrupts a move. Its error has the code OperationFailed and names the cause only in its
    // text (observed with 6.0.27: `Command request failed on source shard. :: caused by :: InterruptedDueToReplStateChange`).
    const isRepeatable = (error: unknown): boolean => isTransient(error) || codeOf(error) === code.operationFailed
    await this.#attempt(move, isRepeatable, this.#context.uneven)
  }

  /**
   * Repeats a change after an error that may pass. For example, a shard may be electing a primary, or refuse a move because
   * another move is not finished.
   * @param refused called with any other error of the server, after which the change is left out
   */
  async #attempt(
    change: () => Promise<unknown>,
    isRepeatable: (error: unknown) => boolean,
    refused: (error: unknown) => void,
  ): Promise<void> {
    const { signal, uneven } = this.#context
    if (this.#isGivenUp) return
    for (let attempt = 1; ; attempt++) {
      try {
        await change()
        return
      } catch (error) {
        if (!isRepeatable(error)) {
          if (!(error instanceof MongoServerError)) throw error
          return refused(error)
        }
        // The process is being stopped, or the lease term has ended.
        if (signal.aborted || error instanceof MongoTopologyClosedError) throw error
        if (attempt === attemptsMax) {
          this.#isGivenUp = true
          uneven(error)
          return
        }
      }
      await sleep(Math.min(firstDelayMS * 2 ** attempt, longestDelayMS), undefined, { signal }).catch(() => {})
    }
  }

  #bound(values: KeyValues): Map<string, RawValue> {
    return new Map(this.#key.map(({ path }, at) => [path, new RawValue(values[at] ?? minKey)]))
  }
}

/** With these values, the delays add up to 13 seconds. A shard elects a primary within about ten seconds. */
const firstDelayMS = 25
const longestDelayMS = 2_000
const attemptsMax = 12
