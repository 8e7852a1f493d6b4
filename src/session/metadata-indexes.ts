import { errorText } from '../domain/error-text.ts'
import { StoppedError } from '../domain/errors.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'

export interface MetadataIndexesParts {
  metadata: Metadata
  coordination: { readonly term: number }
  context: RetryContext
}

/**
 * Creates the indexes of the metadata collections once in each coordinator term, because a sync that an earlier release
 * began has only the indexes of that release. The server does nothing when all of them exist.
 */
export class MetadataIndexes {
  readonly #parts: MetadataIndexesParts
  #term = 0

  constructor(parts: MetadataIndexesParts) {
    this.#parts = parts
  }

  /**
   * Must be called while this instance coordinates. Does not wait for the index builds: all work is correct without the
   * indexes, and the builds may take long when millions of tombstones are stored. The attempts end when the lease is
   * lost or the process ends. Any other failure is logged. In either case the next term tries again.
   */
  create(): void {
    const { metadata, coordination, context } = this.#parts
    if (coordination.term === this.#term) return
    this.#term = coordination.term
    void metadata.createIndexes({ timeoutMS: 0 }).catch((error) => {
      if (!(error instanceof StoppedError))
        context.journal?.('metadata indexes not created', { error: errorText(error) })
    })
  }
}
