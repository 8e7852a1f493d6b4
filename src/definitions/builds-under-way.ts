import type { IndexBuild } from '../domain/index-building.ts'

/**
 * Tracks the collections whose indexes this instance is building. The stored catalog of the sync shows an index as
 * built only after the build, which may take hours.
 */
export class BuildsUnderWay {
  readonly #underWay = new Map<string, IndexBuild>()

  /** The builds, by the UUID of the collection on the source. */
  get underWay(): ReadonlyMap<string, IndexBuild> {
    return this.#underWay
  }

  /**
   * @param uuid UUID of the collection on the source
   * @param build progress of the build; the caller updates the number of missing indexes
   * @param work the function that builds the indexes
   */
  async during(uuid: string, build: IndexBuild, work: () => Promise<void>): Promise<void> {
    this.#underWay.set(uuid, build)
    try {
      await work()
    } finally {
      this.#underWay.delete(uuid)
    }
  }
}
