import { Binary, Long, Timestamp } from 'mongodb'
import type { Catalog } from './catalog.ts'
import { arrayField, buildDocument, documentField, type Field, fieldsOf } from './fields.ts'
import type { Links } from './link.ts'
import { ShardStream } from './shard-stream.ts'

/** Maximum bytes of events in a reply, which the last event may exceed, as on a server. */
const replyBytesMax = 16 * 1024 * 1024
/**
 * Milliseconds that a getMore waits on a shard without events. The first value applies while events of another shard cannot
 * be released before this shard has answered, and the second value otherwise.
 */
const briefPollMs = 1
const idlePollMs = 50
/** Milliseconds after which an unused cursor is closed, as on a server. */
const idleTimeoutMs = 600_000

export interface StreamStart {
  startAt: Timestamp
  /** Events up to this token are skipped, because the client has received them. */
  after?: string | undefined
  /** Events up to this time are skipped, because they occurred before the stream was opened. */
  afterTime?: Timestamp | undefined
}

/**
 * The change stream of the cluster, which merges every shard's own `$changeStream` as a mongos does.
 *
 *   shard 1  ──a────c──────e── highWater ▲
 *   shard 2  ────b──────d── highWater ▲        released: a b c d; e waits until shard 2 has passed its position
 *
 * Events are ordered by resume token. An event is released when no shard can still return an earlier one. The position of a
 * shard without writes advances only with an oplog entry, so the stand-in writes an oplog no-op (a mongos waits for the
 * periodic one).
 *
 * The router cannot do this, because awaiting data aborts its process: its merge sends requests to the shards on a thread
 * that a mongod has not initialized for this purpose.
 */
export class MergedStream {
  readonly id = Long.fromBigInt(nextId++)
  readonly namespace: string
  #links: Links
  /** Separate links, because a no-op on the same connection would wait behind the getMore that it must speed up. */
  #noopLinks: Links
  #shards: ShardStream[] = []
  #lastReleased = ''
  #advancedUntil = 0n
  #ended = false
  #idleTimer: NodeJS.Timeout
  #onClose: () => void

  constructor(namespace: string, openLinks: () => Links, onClose: () => void) {
    this.namespace = namespace
    this.#links = openLinks()
    this.#noopLinks = openLinks()
    this.#onClose = onClose
    this.#idleTimer = setTimeout(() => this.close(), idleTimeoutMs).unref()
  }

  async open(catalog: Catalog, aggregate: Field[], { after, afterTime }: StreamStart): Promise<void> {
    const until = afterTime?.toBigInt()
    const isSkipped = (token: string) =>
      (after !== undefined && token <= after) || (until !== undefined && timeOf(token) <= until)
    for (const shard of await catalog.shardNames()) {
      this.#shards.push(new ShardStream(await catalog.host(shard), this.#links, isSkipped))
    }
    await Promise.all(this.#shards.map((shard) => shard.open(aggregate)))
  }

  firstReply(): Buffer {
    return this.#reply('firstBatch', [])
  }

  async next(awaitMs: number, batchSize: number): Promise<Buffer> {
    this.#idleTimer.refresh()
    const deadline = Date.now() + awaitMs
    for (;;) {
      const failed = this.#shards.find(({ error }) => error)
      if (failed?.error) return failed.error
      const events = this.#release(batchSize)
      const remainingMS = deadline - Date.now()
      const hasWaitingEvents = this.#shards.some(({ head }) => head)
      for (const shard of this.#shards) {
        const blocksOthers = hasWaitingEvents && !shard.head
        shard.poll(blocksOthers ? briefPollMs : Math.max(briefPollMs, Math.min(idlePollMs, remainingMS)))
      }
      if (events.length > 0 || remainingMS <= 0 || this.#ended) return this.#reply('nextBatch', events)
      if (hasWaitingEvents) await this.#advanceIdleShards()
      // All polls may have ended while the no-ops were written, and a race between no promises never settles.
      const pending = this.#shards.map((shard) => shard.pending).filter((poll) => poll !== null)
      if (pending.length > 0) await Promise.race(pending)
    }
  }

  close(): void {
    clearTimeout(this.#idleTimer)
    this.#onClose()
    // Errors are ignored, because an unreachable shard needs no cleanup.
    void Promise.allSettled(this.#shards.map((shard) => shard.close())).then(() => {
      this.#links.close()
      this.#noopLinks.close()
    })
  }

  #release(batchSize: number): Buffer[] {
    const events: Buffer[] = []
    let bytes = 0
    while (events.length < batchSize && bytes < replyBytesMax && !this.#ended) {
      const first = this.#firstShard()
      if (!first?.head) break
      const { token, bytes: event } = first.head
      if (this.#shards.some((shard) => !shard.head && !shard.isEnded && shard.highWater < token)) break
      first.shift()
      events.push(event)
      bytes += event.length
      this.#lastReleased = token
      this.#ended = first.isEnded && !first.head
    }
    return events
  }

  /** Returns the shard whose first event is the earliest of all. */
  #firstShard(): ShardStream | undefined {
    let first: ShardStream | undefined
    for (const shard of this.#shards) {
      if (shard.head && (!first?.head || shard.head.token < first.head.token)) first = shard
    }
    return first
  }

  /**
   * Advances idle shards with an oplog no-op to just after the newest received event, so that one no-op releases all of
   * them.
   */
  async #advanceIdleShards(): Promise<void> {
    let until = 0n
    for (const { newest } of this.#shards) {
      const next = newest ? timeOf(newest.token) + 1n : 0n
      if (next > until) until = next
    }
    if (until <= this.#advancedUntil) return
    this.#advancedUntil = until
    const clusterTime = new Timestamp(until)
    const idle = this.#shards.filter(({ head, isEnded }) => !head && !isEnded)
    await Promise.allSettled(
      idle.map(({ host }) =>
        this.#noopLinks.ask(host, 'admin', {
          appendOplogNote: 1,
          maxClusterTime: clusterTime,
          data: { why: 'change stream of the mongos stand-in' },
          $clusterTime: { clusterTime, signature: { hash: new Binary(Buffer.alloc(20)), keyId: Long.ZERO } },
        }),
      ),
    )
  }

  #reply(batchName: string, events: Buffer[]): Buffer {
    const token = this.#position()
    if (this.#ended) this.close()
    const cursor = [
      ...fieldsOf({ id: this.#ended ? Long.ZERO : this.id, ns: this.namespace }),
      arrayField(batchName, events),
      ...fieldsOf(token === '' ? {} : { postBatchResumeToken: { _data: token } }),
    ]
    return buildDocument([documentField('cursor', cursor), ...fieldsOf({ ok: 1 })])
  }

  /**
   * Returns the resume token up to which all events are released: that of the last event, or the lowest position of all
   * shards if no event waits.
   */
  #position(): string {
    if (this.#shards.some(({ head }) => head)) return this.#lastReleased
    const lowest = this.#shards.reduce<string | undefined>(
      (low, { highWater }) => (low === undefined || highWater < low ? highWater : low),
      undefined,
    )
    return lowest !== undefined && lowest > this.#lastReleased ? lowest : this.#lastReleased
  }
}

/** Cursor ids are too large for a JavaScript number, as on a server, so that clients must keep them as 64-bit integers. */
let nextId = (1n << 62n) + BigInt(Date.now()) * 1_000n

/**
 * Returns the cluster time of a resume token, which begins with the type byte 82 and the time in big-endian hexadecimal
 * digits.
 */
export function timeOf(token: string): bigint {
  return BigInt(`0x${token.slice(2, 18)}`)
}
