import type { CatalogEntry } from '../domain/catalog.ts'
import { errorText } from '../domain/error-text.ts'
import { namespace } from '../domain/namespace.ts'
import type { RetryContext } from '../mongo/retry.ts'

/**
 * Logs that ranges are compared as bytes, although the first pass compares hashes. One line for each collection is
 * enough, because the ranges of a collection usually have the same cause, and a collection may have thousands of them.
 */
export class FallbackLog {
  readonly #context: Pick<RetryContext, 'journal'>
  readonly #logged = new Set<string>()

  constructor(context: Pick<RetryContext, 'journal'>) {
    this.#context = context
  }

  record({ uuid, database, name }: CatalogEntry, error: unknown): void {
    if (this.#logged.has(uuid)) return
    this.#logged.add(uuid)
    this.#context.journal?.('hashes not read', { namespace: namespace(database, name), error: errorText(error) })
  }
}
