import { isCollated } from '../domain/definition.ts'
import { FatalError } from '../domain/errors.ts'
import { isUserCollection, namespace } from '../domain/namespace.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { ListedCollection } from './listing.ts'
import type { Distribution, Placement } from './sharding.ts'

interface Look {
  listed: ListedCollection[]
  distributions: Map<string, Distribution>
  placement: Placement | null
}
/** Whether a collection of the source is in the catalogue, by its UUID. */
type IsKnown = (uuid: string) => boolean

/** Throws for what of a sharded source cannot be carried: a collection being resharded, a sharded one with a collation. */
export function refuseUndistributable(
  database: string,
  listed: ListedCollection[],
  distributions: Look['distributions'],
): void {
  for (const { name, uuid, options } of listed) {
    const distribution = distributions.get(uuid)
    if (!distribution) continue
    if (distribution.resharding) throw resharding(database, name)
    if (isCollated(options)) {
      throw new FatalError(
        'UnsupportedCollection',
        `${namespace(database, name)} is sharded and has a collation of its own: its shards may hold spellings of one _id ` +
          'that another distribution brings together. Leave it out by dropping it, or unshard it, on the source.',
      )
    }
  }
}

/** A reshardCollection writes the resharded collection without change events, under another UUID. */
export function resharding(database: string, name: string): FatalError {
  return new FatalError(
    'UnsupportedChange',
    `${namespace(database, name)} is being resharded on the source (reshardCollection), which cannot be followed: the server ` +
      'writes the new collection without change events. Start over with an emptied destination once it has ended.',
  )
}

/**
 * Up to 7.0 movePrimary clones a database's unsharded collections under new UUIDs and drops the old ones: the stream tells of a
 * creation and of a drop, and of no document (measured on 6.0.27). Taken for what they look like, they would lose everything.
 * So what is known of where each database lives is stored, and compared at each look. A collection that is really new, created
 * within seconds of a movePrimary, is taken for a clone as well: nothing tells them apart that could be relied on.
 */
export class SourcePlacements {
  readonly #metadata: Metadata
  #known: Map<string, string> | null = null

  constructor(metadata: Metadata) {
    this.#metadata = metadata
  }

  /** The databases known that have been moved, or dropped and made anew, since they were last looked at. */
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

  /** Throws FatalError UnsupportedChange when collections were cloned by a movePrimary. Sharded ones stay what they are. */
  async refuseMoved(database: string, look: Look, isKnown: IsKnown): Promise<void> {
    if (!look.placement) return
    const { version } = look.placement
    const before = await this.#before(database, version)
    if (before === version) return
    const moved = before !== undefined && before.split(':')[0] === version.split(':')[0]
    const cloned = unknownUnsharded(look, isKnown)
    if (moved && cloned) {
      throw new FatalError(
        'UnsupportedChange',
        `the primary shard of ${database} was changed on the source (movePrimary), which clones ${namespace(database, cloned.name)} ` +
          'without change events. Start over with an emptied destination.',
      )
    }
    await this.#save(database, version)
  }

  /**
   * Notes where a database lives now when nothing in it may have been cloned by its move. What is created there afterwards is
   * new then, and not taken for a clone.
   */
  async noteMoved(database: string, look: Look, isKnown: IsKnown): Promise<void> {
    if (!look.placement || unknownUnsharded(look, isKnown)) return
    await this.#save(database, look.placement.version)
  }

  /** Looked up anew before it says that a database was moved: others may have coordinated, and noted it, since the last look. */
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

function unknownUnsharded({ listed, distributions }: Look, isKnown: IsKnown): ListedCollection | undefined {
  return listed.find(
    ({ name, type, uuid }) =>
      type === 'collection' && isUserCollection(name) && !distributions.has(uuid) && !isKnown(uuid),
  )
}
