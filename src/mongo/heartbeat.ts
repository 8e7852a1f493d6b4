import type { Cluster } from './cluster.ts'
import { appendOplogNote } from './oplog-note.ts'

/** How often a no-op is written to the source, so that a quiet cluster's position moves on and never leaves the oplog. */
const beatMS = 10_000

/** Periodic no-op writes on the source while a sync runs, as mongosync makes them. */
export class Heartbeat {
  readonly #cluster: Cluster
  #timer: NodeJS.Timeout | null = null

  constructor(source: Cluster) {
    this.#cluster = source
  }

  start(): void {
    this.#timer ??= setInterval(() => {
      // A beat that fails is made up for by the next; the stream itself reports an unreachable source.
      appendOplogNote(this.#cluster, 'heartbeat').catch(() => {})
    }, beatMS)
  }

  stop(): void {
    if (this.#timer) clearInterval(this.#timer)
    this.#timer = null
  }
}
