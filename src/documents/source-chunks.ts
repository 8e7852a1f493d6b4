import { readDistribution } from '../definitions/sharding.ts'
import type { CatalogEntry } from '../domain/catalog.ts'
import { ChunkMap } from '../domain/chunk-map.ts'
import { errorText } from '../domain/error-text.ts'
import type { Journal } from '../domain/journal.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { chunksVersion, readChunkStarts } from '../mongo/config-database.ts'

/** The age of a map (ms) after which the next use makes tandem check whether chunks have moved. */
const refreshMS = 30_000
/** A collection with more chunks has no map. The bounds of this many chunks take some 10 MB. */
const chunksMax = 50_000
/** The largest number of collections per cluster whose maps are kept. */
const collectionsMax = 1_000

type Collection = Pick<CatalogEntry, 'database' | 'sourceName' | 'uuid'>

interface Known {
  map: ChunkMap | null
  version: string
  /** `performance.now()` of the end of the last read. */
  readAt: number
  isReading: boolean
  /** The first error since the last successful read; null if there was none. Later errors are not logged. */
  failure: { error: string; isLogged: boolean } | null
}

const known = new WeakMap<Cluster, Map<string, Known>>()

/**
 * Returns the chunks of a sharded collection of the source; null if they are not known, or if one shard has all of them.
 * Never waits, because the chunks are read in the background. Until they are known, documents are read without a map.
 * @param journal receives a line when the chunks could not be read, also if another caller began the read
 */
export function chunkMapOf(source: Cluster, collection: Collection, journal?: Journal): ChunkMap | null {
  const maps = known.get(source) ?? new Map<string, Known>()
  known.set(source, maps)
  let one = maps.get(collection.uuid)
  if (!one) {
    if (maps.size >= collectionsMax) maps.clear()
    one = { map: null, version: '', readAt: Number.NEGATIVE_INFINITY, isReading: false, failure: null }
    maps.set(collection.uuid, one)
  }
  if (!one.isReading && performance.now() - one.readAt > refreshMS) {
    one.isReading = true
    const isRead = refresh(source, collection, one)
    source.endLater(journal ? isRead.then(() => logFailure(collection, one, journal)) : isRead)
  }
  if (journal) logFailure(collection, one, journal)
  return one.map
}

function logFailure({ database, sourceName }: Collection, { failure, map }: Known, journal: Journal): void {
  if (!failure || failure.isLogged) return
  failure.isLogged = true
  const instead = map
    ? 'the chunks that were read before are used; documents that have moved since are read from every shard'
    : 'changed documents are read by _id, from every shard'
  journal('chunks not read', { namespace: namespace(database, sourceName), error: failure.error, instead })
}

/** Never rejects. After a failure the former map stays in use, because an outdated map is not wrong. */
async function refresh(source: Cluster, { database, sourceName, uuid }: Collection, into: Known): Promise<void> {
  try {
    const distribution = await readDistribution(source, namespace(database, sourceName), uuid)
    const version = JSON.stringify([distribution?.key, await chunksVersion(source, uuid)])
    const isUnchanged = version === into.version
    const starts = !isUnchanged && distribution?.key ? await readChunkStarts(source, uuid, chunksMax) : null
    into.failure = null
    if (isUnchanged) return
    const map = distribution?.key && starts ? new ChunkMap(distribution.key, starts) : null
    if (map && !map.isConsistent) {
      // The key was refined between the reads. Documents are read without a map until the next refresh.
      into.map = null
      return
    }
    into.map = map?.isDistributed ? map : null
    into.version = version
  } catch (error) {
    // The next refresh repeats the read.
    into.failure ??= { error: errorText(error), isLogged: false }
  } finally {
    into.readAt = performance.now()
    into.isReading = false
  }
}
