import { type Failure, FatalError, toFailure } from '../domain/errors.ts'
import { olderMetadataDatabase } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { OlderMetadata } from '../mongo/older-metadata.ts'
import { type RetryContext, RetryMonitor } from '../mongo/retry.ts'
import { refuseOlderSync } from './find-stored.ts'

const checkMS = 30_000
/** A check in the background ends after this time, because the next one follows soon. */
const patienceMS = 10_000

export interface OtherSyncsParts {
  source: Cluster
  destination: Cluster
  context: RetryContext
}

/**
 * Looks for a sync that an instance of an earlier release has begun between the same clusters, while this instance takes
 * part in a sync under the new name. `OlderMetadata` describes when that is possible.
 */
export class OtherSyncs {
  readonly #parts: OtherSyncsParts
  #timer: NodeJS.Timeout | null = null
  #checking = false

  constructor(parts: OtherSyncsParts) {
    this.#parts = parts
  }

  /** Throws FatalError StoredStateConflict if the database of earlier releases holds a sync on one of the clusters. */
  async check(context: RetryContext): Promise<void> {
    const { source, destination } = this.#parts
    if (destination.metadataDatabase === olderMetadataDatabase) return
    for (const cluster of [destination, source]) await refuseOlderSync(cluster, context)
  }

  /** Checks twice a minute until `end`, and removes an expired reservation of the older name. */
  begin(onFound: (failure: Failure) => void): void {
    if (this.#parts.destination.metadataDatabase === olderMetadataDatabase) return
    this.#timer ??= setInterval(() => {
      if (this.#checking) return
      this.#checking = true
      void this.#watch(onFound).finally(() => {
        this.#checking = false
      })
    }, checkMS).unref()
  }

  end(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
  }

  async #watch(onFound: (failure: Failure) => void): Promise<void> {
    const { destination, context } = this.#parts
    const signal = AbortSignal.any([context.signal, AbortSignal.timeout(patienceMS)])
    const limited = { monitor: new RetryMonitor(), signal }
    try {
      await this.check(limited)
      await new OlderMetadata(destination, limited).removeExpired()
    } catch (error) {
      // Anything else, such as a missing privilege on that database, does not concern this sync. The next check follows soon.
      const isConflict = error instanceof FatalError && error.failure === 'StoredStateConflict'
      if (this.#timer !== null && isConflict) onFound(toFailure(error))
    }
  }
}
