import { readDistribution } from '../definitions/sharding.ts'
import { ChunkMap } from '../domain/chunk-map.ts'
import { namespace } from '../domain/namespace.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { chunksVersion, readChunkStarts } from '../mongo/config-database.ts'

/** How old a map may become, in ms, before tandem asks whether chunks have moved. Only collections in use are asked for. */
const refreshMS = 30_000
/** A collection with more chunks has no map. This many bounds take some 10 MB. */
const chunksMax = 50_000
/** The largest number of collections per cluster whose maps are kept. */
const collectionsMax = 1_000

interface Known {
  map: ChunkMap | null
  version: string
  /** `performance.now()` of the end of the last read. */
  readAt: number
  isReading: boolean
}

const known = new WeakMap<Cluster, Map<string, Known>>()

/**
 * The chunks of a sharded collection of the source; null if the map is not known, or if one shard has all chunks. Never
 * waits: the chunks are read in the background, and until then, or when that fails, documents are read without a map.
 */
export function chunkMapOf(
  source: Cluster,
  collection: { database: string; sourceName: string; uuid: string },
): ChunkMap | null {
  const maps = known.get(source) ?? new Map<string, Known>()
  known.set(source, maps)
  let one = maps.get(collection.uuid)
  if (!one) {
    if (maps.size >= collectionsMax) maps.clear()
    one = { map: null, version: '', readAt: Number.NEGATIVE_INFINITY, isReading: false }
    maps.set(collection.uuid, one)
  }
  if (!one.isReading && performance.now() - one.readAt > refreshMS) {
    one.isReading = true
    source.endLater(refresh(source, collection, one))
  }
  return one.map
}

/** Never rejects. After a failure the former map stays in use, because an outdated map is not wrong. */
async function refresh(
  source: Cluster,
  { database, sourceName, uuid }: { database: string; sourceName: string; uuid: string },
  into: Known,
): Promise<void> {
  try {
    const distribution = await readDistribution(source, namespace(database, sourceName), uuid)
    const version = JSON.stringify([distribution?.key, await chunksVersion(source, uuid)])
    if (version === into.version) return
    const starts = distribution?.key ? await readChunkStarts(source, uuid, chunksMax) : null
    const map = distribution?.key && starts ? new ChunkMap(distribution.key, starts) : null
    if (map && !map.isConsistent) {
      // The key was refined between the reads. Documents are read without a map until the next refresh.
      into.map = null
      return
    }
    into.map = map?.isDistributed ? map : null
    into.version = version
  } catch {
    // The next refresh repeats it.
  } finally {
    into.readAt = performance.now()
    into.isReading = false
  }
}
