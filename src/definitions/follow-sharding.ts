import { isCollated } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { ListedCollection } from './listing.ts'
import type { Distribution, Placement } from './sharding.ts'

interface ShardingSnapshot {
  listed: ListedCollection[]
  distributions: Map<string, Distribution>
  placement: Placement | null
}
/** Whether the source collection with this UUID is in the catalogue. */
type IsKnown = (uuid: string) => boolean

/** Throws FatalError for a collection that is being resharded and for a sharded collection with a collation. */
export function refuseUndistributable(
  database: string,
  listed: ListedCollection[],
  distributions: ShardingSnapshot['distributions'],
): void {
  for (const { name, uuid, options } of listed) {
    const distribution = distributions.get(uuid)
    if (!distribution) continue
    if (distribution.resharding) throw resharding(database, name)
    if (isCollated(options)) {
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, name)} is sharded and has a collation of its own. Its shards may hold several _ids that are equal ` +
          'under the collation, and the destination may have to store them on one shard. Drop the collection on the source, unshard it there, or exclude it ' +
          `with a filter at start; if the sync was running, then send resume. ${notLost.atStartOrLater}`,
      )
    }
  }
}

/** reshardCollection writes the resharded collection without change events, under another UUID. */
export function resharding(database: string, name: string): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `${namespace(database, name)} is being resharded on the source (reshardCollection), which tandem cannot follow: the server ` +
      `writes the new collection without change events. Wait until it has ended, then start over with an emptied destination. ${notLost.source}`,
  )
}

/**
 * Up to 7.0, movePrimary clones a database's unsharded collections under new UUIDs and drops the old ones. The stream
 * emits a create and a drop event but no document events (measured on 6.0.27), so following these events would lose all
 * documents. Therefore the version of each database's placement is stored, and each read of the catalog is compared
 * with it. A new collection that is created within seconds of a movePrimary also counts as a clone, because nothing
 * reliable distinguishes the two.
 */
export class SourcePlacements {
  readonly #metadata: Metadata
  #known: Map<string, string> | null = null

  constructor(metadata: Metadata) {
    this.#metadata = metadata
  }

  /** The known databases that were moved, or dropped and created again, since their placement was stored. */
  async changed(placements: Placement[]): Promise<string[]> {
    const known = await this.#load()
    return placements
      .filter(({ database, version }) => known.has(database) && known.get(database) !== version)
      .map(({ database }) => database)
  }

  async #load(): Promise<Map<string, string>> {
    this.#known ??= await this.#metadata.sharding.loadPlacements()
    return this.#known
  }

  /** Throws FatalError UnsupportedChange when movePrimary cloned collections. It does not clone sharded collections. */
  async refuseMoved(database: string, snapshot: ShardingSnapshot, isKnown: IsKnown): Promise<void> {
    if (!snapshot.placement) return
    const { version } = snapshot.placement
    const before = await this.#before(database, version)
    if (before === version) return
    const moved = before !== undefined && before.split(':')[0] === version.split(':')[0]
    const cloned = unknownUnsharded(snapshot, isKnown)
    if (moved && cloned) {
      throw new FatalError(
        'UnsupportedChange',
        `the primary shard of ${database} was changed on the source (movePrimary), which clones ${namespace(database, cloned.name)} ` +
          `without change events, so tandem cannot follow it. Start over with an emptied destination. ${notLost.source}`,
      )
    }
    await this.#save(database, version)
  }

  /**
   * Stores the current placement of a database when its move cannot have cloned any collection. Collections that are
   * created there later are then recognized as new and not as clones.
   */
  async recordMoved(database: string, snapshot: ShardingSnapshot, isKnown: IsKnown): Promise<void> {
    if (!snapshot.placement || unknownUnsharded(snapshot, isKnown)) return
    await this.#save(database, snapshot.placement.version)
  }

  /**
   * The stored placement version. A mismatch is checked against the store again, because another coordinator may have
   * recorded the move in the meantime.
   */
  async #before(database: string, version: string): Promise<string | undefined> {
    const known = (await this.#load()).get(database)
    if (known === version) return known
    this.#known = null
    return (await this.#load()).get(database)
  }

  async #save(database: string, version: string): Promise<void> {
    await this.#metadata.sharding.savePlacement(database, version)
    this.#known?.set(database, version)
  }
}

function unknownUnsharded({ listed, distributions }: ShardingSnapshot, isKnown: IsKnown): ListedCollection | undefined {
  return listed.find(
    ({ name, type, uuid }) =>
      type === 'collection' && isUserCollection(name) && !distributions.has(uuid) && !isKnown(uuid),
  )
}
