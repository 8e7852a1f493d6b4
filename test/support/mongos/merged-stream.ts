import { Binary, Long, Timestamp } from 'mongodb'
import type { Catalog } from './catalog.ts'
import { arrayField, buildDocument, documentField, type Field, fieldsOf } from './fields.ts'
import type { Links } from './link.ts'
import { ShardStream } from './shard-stream.ts'

/** A reply holds no more bytes of events than this and one event, as a server's. */
const replyBytesMax = 16 * 1024 * 1024
/** How long a shard without events may take to answer: with another's events waiting, and without. */
const briefPollMs = 1
const idlePollMs = 50
/** As a server does with a cursor that nobody asks for. */
const idleTimeoutMs = 600_000

export interface StreamStart {
  startAt: Timestamp
  /** Events up to this token have been seen before. */
  after?: string | undefined
  /** Events up to this time are of before the stream was opened. */
  afterTime?: Timestamp | undefined
}

/**
 * The change stream of the cluster: every shard's own `$changeStream`, merged as a mongos merges them.
 *
 *   shard 1  ──a────c──────e── highWater ▲
 *   shard 2  ────b──────d── highWater ▲        released: a b c d; e waits until shard 2 tells that nothing comes before it
 *
 * Events are ordered by resume token, and one is released when no shard can still give an earlier one. A shard without
 * writes tells its position only when its clock moves; a note in its oplog moves it (a mongos waits for the periodic one).
 *
 * This is not left to the router, because awaiting data there aborts it: its merge asks shards on a thread that a mongod
 * has not prepared for it.
 */
export class MergedStream {
  readonly id = Long.fromBigInt(nextId++)
  readonly namespace: string
  #links: Links
  /** A note would wait on a connection behind the getMore that it is to hasten. */
  #notes: Links
  #shards: ShardStream[] = []
  #lastReleased = ''
  #notedUntil = 0n
  #ended = false
  #idleTimer: NodeJS.Timeout
  #onClose: () => void

  constructor(namespace: string, openLinks: () => Links, onClose: () => void) {
    this.namespace = namespace
    this.#links = openLinks()
    this.#notes = openLinks()
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
      const left = deadline - Date.now()
      const isWaiting = this.#shards.some(({ head }) => head)
      for (const shard of this.#shards) {
        const isHoldingUp = isWaiting && !shard.head
        shard.poll(isHoldingUp ? briefPollMs : Math.max(briefPollMs, Math.min(idlePollMs, left)))
      }
      if (events.length > 0 || left <= 0 || this.#ended) return this.#reply('nextBatch', events)
      if (isWaiting) await this.#advanceIdleShards()
      // All may have answered while the notes were written; a race between none would never end.
      const pending = this.#shards.map((shard) => shard.pending).filter((poll) => poll !== null)
      if (pending.length > 0) await Promise.race(pending)
    }
  }

  close(): void {
    clearTimeout(this.#idleTimer)
    this.#onClose()
    // A shard that does not answer any more has no cursor to close.
    void Promise.allSettled(this.#shards.map((shard) => shard.close())).then(() => {
      this.#links.close()
      this.#notes.close()
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

  /** The shard whose first event is the earliest of all. */
  #firstShard(): ShardStream | undefined {
    let first: ShardStream | undefined
    for (const shard of this.#shards) {
      if (shard.head && (!first?.head || shard.head.token < first.head.token)) first = shard
    }
    return first
  }

  /** To just after the newest event received, so that one note serves all of them. */
  async #advanceIdleShards(): Promise<void> {
    let until = 0n
    for (const { newest } of this.#shards) {
      const next = newest ? timeOf(newest.token) + 1n : 0n
      if (next > until) until = next
    }
    if (until <= this.#notedUntil) return
    this.#notedUntil = until
    const clusterTime = new Timestamp(until)
    const idle = this.#shards.filter(({ head, isEnded }) => !head && !isEnded)
    await Promise.allSettled(
      idle.map(({ host }) =>
        this.#notes.ask(host, 'admin', {
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

  /** Everything up to here has been released: the last event, or where all shards are with nothing waiting. */
  #position(): string {
    if (this.#shards.some(({ head }) => head)) return this.#lastReleased
    const lowest = this.#shards.reduce<string | undefined>(
      (low, { highWater }) => (low === undefined || highWater < low ? highWater : low),
      undefined,
    )
    return lowest !== undefined && lowest > this.#lastReleased ? lowest : this.#lastReleased
  }
}

/** Too large for a JavaScript number, as a server's: so whoever reads it has to keep it as 64-bit integer. */
let nextId = (1n << 62n) + BigInt(Date.now()) * 1_000n

/** A token begins with a type byte, 82, and its cluster time in big-endian hexadecimal digits. */
export function timeOf(token: string): bigint {
  return BigInt(`0x${token.slice(2, 18)}`)
}
