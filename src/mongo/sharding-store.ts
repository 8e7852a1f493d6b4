import type { StoredDocuments } from './stored-documents.ts'

/** Stored facts about the data distribution of both clusters. */
export class ShardingStore {
  readonly #stored: StoredDocuments
  constructor(stored: StoredDocuments) {
    this.#stored = stored
  }

  /** Returns the stored placement version of each database of the source (`SourcePlacements.record`). */
  async loadPlacements(): Promise<Map<string, string>> {
    const found = await this.#stored.find('placements', {})
    return new Map(found.map((document) => [document['_id'] as string, document['version'] as string]))
  }

  async savePlacement(database: string, version: string): Promise<void> {
    await this.#stored.replace('placements', database, { version })
  }

  /** The mode of the destination's balancer before the sync stopped it. Null if the sync did not stop it. */
  async loadBalancer(): Promise<string | null> {
    return ((await this.#stored.findOne('balancer', { _id: 'balancer' }))?.['mode'] as string | undefined) ?? null
  }

  async saveBalancer(mode: string): Promise<void> {
    await this.#stored.replace('balancer', 'balancer', { mode })
  }
}
