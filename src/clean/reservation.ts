import { toFailure } from '../domain/errors.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { toFatal } from '../mongo/errors.ts'
import { OlderMetadata, reservationMS } from '../mongo/older-metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import { storesSync } from '../session/other-syncs.ts'

/**
 * The reservation of the older name (`OlderMetadata`) on a cluster, which is not in the databases of a sync with a name.
 * It may be that of another sync, so it is removed when it has expired, and earlier only if no other sync is stored on the
 * cluster. One that is about to store its record reserves the name again after that.
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

  /** False if the user may not read it: a sync with a name needs no privilege on that database to be removed. */
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
