import { toFailure } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { toFatal } from '../mongo/errors.ts'
import { OlderMetadata, reservationMS } from '../mongo/older-metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { storesSync } from '../session/other-syncs.ts'

/**
 * The reservation of the older database name (`OlderMetadata`) on a cluster. The removal of a sync with a name uses
 * this class, because the metadata databases of such a sync do not include the older one. The reservation may belong to
 * another sync, so it is removed when it has expired, and earlier only if the cluster stores no other sync. A sync that
 * is about to store its record reserves the name again after that.
 */
export class LeftReservation {
  readonly #cluster: Cluster
  readonly #context: RetryContext
  readonly #own: readonly string[]

  /** @param own the metadata databases of the sync that is removed */
  constructor(cluster: Cluster, context: RetryContext, own: readonly string[]) {
    this.#cluster = cluster
    this.#context = context
    this.#own = own
  }

  /**
   * Returns true if there is a reservation to remove. Returns false if the user may not read it, because the removal of
   * a sync with a name needs no privilege on that database.
   */
  async exists(): Promise<boolean> {
    try {
      return await new OlderMetadata(this.#cluster, this.#context).hasExpired(await this.#afterMS())
    } catch (error) {
      if (toFailure(toFatal('reading the reservation', error)).error === 'MissingPrivileges') return false
      throw error
    }
  }

  async remove(): Promise<void> {
    await new OlderMetadata(this.#cluster, this.#context).removeExpired(await this.#afterMS())
  }

  async #afterMS(): Promise<number> {
    return (await storesSync(this.#cluster, this.#context, this.#own)) ? reservationMS : 0
  }
}
