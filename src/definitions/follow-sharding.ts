import { isUserCollection, namespace } from '../domain/namespace.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { ListedCollection } from './listing.ts'
import type { Distribution, Placement } from './sharding.ts'

interface ShardingSnapshot {
  listed: ListedCollection[]
  distributions: Map<string, Distribution>
  placement: Placement | null
}
/** Returns true if the source's collection with this UUID is in tandem's catalog. */
type IsKnown = (uuid: string) => boolean

/**
 * Finds the collections that movePrimary moved on a sharded source.
 *
 * movePrimary clones a database's unsharded collections under new UUIDs and drops the old ones. The stream emits no
 * events for the cloned documents, so following definitions alone would lose all documents. For each collection it
 * emits a create and a drop event on 6.0.27 (measured), only the create event since 8.0 (SERVER-69933), and neither
 * since 8.3 (SERVER-120349). Therefore the placement version of each database is stored, and each read of the source's
 * catalog compares the current version with it. When the version has changed, every unknown unsharded collection of the
 * database is converged (`findClones`). A database that was created and moved before its first read has no stored
 * version, but its current version shows that it was moved (`isMoved`).
 *
 * No document is lost:
 *
 * - A router lists the clones only when the new placement is committed, and then they are complete. A read of the
 *   catalog that lists them therefore has the new version (`readCommitted` repeats a read during which the version
 *   changes).
 * - The new version is stored only when tandem's catalog contains all clones as collections to copy. Until then, every
 *   read of the source's catalog finds them again, even after a crash.
 * - Convergence reads the clones later than it finds them, so it reads everything that was cloned. Later changes have
 *   events with the UUIDs of the clones.
 *
 * A new collection that is created within seconds of a movePrimary also counts as a clone, because nothing reliable
 * distinguishes the two. It is then copied instead of followed from its first event, which is harmless.
 */
export class SourcePlacements {
  readonly #metadata: Metadata
  /** The stored placement versions, by database. */
  #stored: Map<string, string> | null = null

  constructor(metadata: Metadata) {
    this.#metadata = metadata
  }

  /** Returns the databases that were moved, or dropped and created again, since their placement was stored. */
  async changed(placements: Placement[]): Promise<string[]> {
    const stored = await this.#load()
    return placements
      .filter(({ database, version }) => stored.has(database) && stored.get(database) !== version)
      .map(({ database }) => database)
  }

  async #load(): Promise<Map<string, string>> {
    this.#stored ??= await this.#metadata.sharding.loadPlacements()
    return this.#stored
  }

  /**
   * Returns the collections that movePrimary may have cloned, by UUID, each with its namespace. movePrimary does not
   * clone sharded collections. Since 8.0, it does not clone unsharded collections that moveCollection has moved either
   * (SERVER-83925), but converging one of these is harmless.
   */
  async findClones(database: string, snapshot: ShardingSnapshot, isKnown: IsKnown): Promise<Map<string, string>> {
    if (!snapshot.placement) return new Map()
    const { version } = snapshot.placement
    const stored = await this.#storedVersion(database, version)
    const cloned = isMoved(stored, version) ? unknownUnsharded(snapshot, isKnown) : []
    return new Map(cloned.map(({ uuid, name }) => [uuid, namespace(database, name)]))
  }

  /**
   * Stores the current placement of a database. Before this call, tandem's catalog must contain every clone. All
   * collections that are still unknown are new, so all of their documents have events.
   */
  async record(database: string, { placement }: ShardingSnapshot): Promise<void> {
    if (!placement || (await this.#storedVersion(database, placement.version)) === placement.version) return
    await this.#save(database, placement.version)
  }

  /**
   * Returns the stored placement version. If the version in memory differs from `version`, the stored one is loaded
   * again, because another coordinator may have recorded the move in the meantime.
   */
  async #storedVersion(database: string, version: string): Promise<string | undefined> {
    const inMemory = (await this.#load()).get(database)
    if (inMemory === version) return inMemory
    this.#stored = null
    return (await this.#load()).get(database)
  }

  async #save(database: string, version: string): Promise<void> {
    await this.#metadata.sharding.savePlacement(database, version)
    this.#stored?.set(database, version)
  }
}

/**
 * Returns true if a database was moved since this placement version was stored. If no version was stored, or the
 * database was created again since then, returns true if it was ever moved: the first placement of a database has
 * `lastMod` 1, and each movePrimary adds 1.
 * https://github.com/mongodb/mongo/blob/r8.0.0/src/mongo/s/database_version.cpp
 */
function isMoved(stored: string | undefined, version: string): boolean {
  const [creation, lastMod] = version.split(':')
  if (stored?.split(':')[0] === creation) return stored !== version
  return Number(lastMod) > 1
}

function unknownUnsharded({ listed, distributions }: ShardingSnapshot, isKnown: IsKnown): ListedCollection[] {
  return listed.filter(
    ({ name, type, uuid }) =>
      type === 'collection' && isUserCollection(name) && !distributions.get(uuid)?.key && !isKnown(uuid),
  )
}
