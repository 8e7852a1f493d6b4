import type { StoredDocuments } from './stored-documents.ts'

/** What is remembered of how either cluster was distributed. */
export class ShardingStore {
  readonly #stored: StoredDocuments
  constructor(stored: StoredDocuments) {
    this.#stored = stored
  }

  /** Versions of where the source's databases live, as last looked at. */
  async loadPlacements(): Promise<Map<string, string>> {
    const found = await this.#stored.find('placements', {})
    return new Map(found.map((document) => [document['_id'] as string, document['version'] as string]))
  }

  async savePlacement(database: string, version: string): Promise<void> {
    await this.#stored.replace('placements', database, { version })
  }

  /** The destination's balancer as it was before the sync stopped it; null where it did not. */
  async loadBalancer(): Promise<string | null> {
    return ((await this.#stored.findOne('balancer', { _id: 'balancer' }))?.['mode'] as string | undefined) ?? null
  }

  async saveBalancer(mode: string): Promise<void> {
    await this.#stored.replace('balancer', 'balancer', { mode })
  }
}
