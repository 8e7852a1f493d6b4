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
 * Creates the indexes of the metadata once in each coordinator term. A sync that an earlier release began has only the
 * indexes of that release. The server does nothing when all of them exist.
 */
export class MetadataIndexes {
  readonly #parts: MetadataIndexesParts
  #term = 0

  constructor(parts: MetadataIndexesParts) {
    this.#parts = parts
  }

  /**
   * Call it while this instance coordinates. Does not wait: all work is correct without the indexes, and building them may
   * take long when millions of tombstones are stored. The work ends with the lease or the process, and the next term
   * repeats it. A failure is logged.
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
