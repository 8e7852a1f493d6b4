import { randomUUID } from 'node:crypto'
import type { CatalogEntry } from '../domain/catalog.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import type { BothClusters } from '../mongo/cluster.ts'
import type { VerificationStore } from '../mongo/verification-store.ts'
import { comparedAtOnce, findDifferent } from './recheck-documents.ts'

export interface SuspectsParts {
  clusters: BothClusters
  store: Pick<VerificationStore, 'saveRechecks'>
}

/**
 * The documents of one range for which both reads did not return the same bytes. They are compared once more, because
 * most of them changed between the two reads, and stored if they still differ.
 */
export class Suspects {
  readonly #parts: SuspectsParts
  readonly #entry: CatalogEntry
  readonly #notBefore: ClusterTime
  #idElements: Buffer[] = []

  constructor(parts: SuspectsParts, entry: CatalogEntry, notBefore: ClusterTime) {
    this.#parts = parts
    this.#entry = entry
    this.#notBefore = notBefore
  }

  add(idElement: Buffer): void {
    this.#idElements.push(Buffer.from(idElement))
  }

  /** Stores them if they are so many that memory could grow. */
  async storeMany(): Promise<void> {
    if (this.#idElements.length >= comparedAtOnce) await this.store()
  }

  /** Resolves when all that still differ are stored. */
  async store(): Promise<void> {
    const { clusters, store } = this.#parts
    while (this.#idElements.length > 0) {
      const part = this.#idElements.splice(0, comparedAtOnce)
      const different = await findDifferent(clusters, this.#entry, part, this.#notBefore)
      const token = randomUUID()
      const { uuid } = this.#entry
      await store.saveRechecks(
        different.map((idElement) => ({ uuid, idElement, onSource: false, onDestination: false, token })),
      )
    }
  }
}
