import type { Timestamp } from 'mongodb'
import type { Cluster } from './cluster.ts'

/** Below, the oplog has never been full, so its window is not what it reaches back but what it will grow to. */
const fullShare = 0.9
const refreshMS = 5 * 60_000

/** Seconds that the oplog of a replica set reaches back; infinite while the oplog has never been full. */
export async function oplogWindowOf(source: Cluster): Promise<number> {
  const edge = async (order: 1 | -1): Promise<number> => {
    const command = { find: 'oplog.rs', sort: { $natural: order }, limit: 1, projection: { ts: 1 }, singleBatch: true }
    const [entry] = (await source.read('local', command))['cursor'].firstBatch as { ts: Timestamp }[]
    return entry?.ts.getHighBitsUnsigned() ?? 0
  }
  const pipeline = [
    { $collStats: { storageStats: {} } },
    { $project: { size: '$storageStats.size', maxSize: '$storageStats.maxSize' } },
  ]
  const reply = await source.read('local', { aggregate: 'oplog.rs', pipeline, cursor: {} })
  const [{ size = 0, maxSize = 0 } = {}] = reply['cursor'].firstBatch as { size?: number; maxSize?: number }[]
  if (Number(size) < fullShare * Number(maxSize)) return Number.POSITIVE_INFINITY
  return (await edge(-1)) - (await edge(1))
}

/** Looks now and then, while a sync runs, how far the source's oplog reaches back. */
export class OplogWatch {
  /** Null before the first look, where the user may not look, and for a sharded source. */
  seconds: number | null = null
  readonly #source: Cluster
  #timer: NodeJS.Timeout | null = null

  constructor(source: Cluster) {
    this.#source = source
  }

  start(): void {
    if (this.#timer || this.#source.sharded) return
    this.#timer = setInterval(() => this.#look(), refreshMS)
    this.#look()
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
  }

  #look(): void {
    // An estimate for people: without it everything works.
    oplogWindowOf(this.#source).then(
      (seconds) => {
        this.seconds = seconds
      },
      () => {
        this.seconds = null
      },
    )
  }
}
