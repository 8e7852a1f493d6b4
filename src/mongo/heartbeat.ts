import type { Cluster } from './cluster.ts'
import { appendOplogNote } from './oplog-note.ts'

/**
 * Interval of the no-ops on the source. They advance the position of an idle cluster, so that the position never falls
 * out of the oplog.
 */
const intervalMS = 10_000

/** Writes periodic no-ops to the source while a sync runs, as mongosync does. */
export class Heartbeat {
  readonly #cluster: Cluster
  #timer: NodeJS.Timeout | null = null

  constructor(source: Cluster) {
    this.#cluster = source
  }

  start(): void {
    this.#timer ??= setInterval(() => {
      // The next no-op replaces a failed one. The change stream reports an unreachable source.
      appendOplogNote(this.#cluster, 'heartbeat').catch(() => {})
    }, intervalMS)
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
  }
}
