import type { Document, Long } from 'mongodb'
import { findSpan } from '../../../src/domain/raw-bson.ts'
import { CommandError, succeeded } from './command.ts'
import { buildDocument, decode, encode, exactValue, type Field, fieldNamed, fieldsOf, readFields } from './fields.ts'
import type { Links } from './link.ts'
import { documentAt } from './wire.ts'

/** The stream requests no more events while this many bytes are buffered. */
const bufferedBytesMax = 32 * 1024 * 1024

interface StreamedEvent {
  /** The resume token's text, which sorts in the order of the events. */
  token: string
  bytes: Buffer
}

/** The change stream of one shard with prefetch. Events stay bytes; only their resume token is parsed. */
export class ShardStream {
  readonly host: string
  /** Every event up to this token has been received. */
  highWater = ''
  /** The reply of a getMore that failed. */
  error: Buffer | null = null
  /** True if the shard has ended the stream after an invalidate event. */
  isEnded = false
  pending: Promise<void> | null = null
  #links: Links
  #isSkipped: (token: string) => boolean
  #cursor: { id: Long; collection: string; database: string } | null = null
  #events: StreamedEvent[] = []
  #next = 0
  #bytes = 0

  constructor(host: string, links: Links, isSkipped: (token: string) => boolean) {
    this.host = host
    this.#links = links
    this.#isSkipped = isSkipped
  }

  async open(aggregate: Field[]): Promise<void> {
    const reply = await this.#links.send(this.host, buildDocument(aggregate))
    const { ns, postBatchResumeToken } = succeeded(reply)['cursor']
    const { id } = exactValue(fieldNamed(readFields(reply), 'cursor')) as { id: Long }
    const dot = ns.indexOf('.')
    this.#cursor = { id, database: ns.slice(0, dot), collection: ns.slice(dot + 1) }
    this.highWater = postBatchResumeToken._data
  }

  get head(): StreamedEvent | undefined {
    return this.#events[this.#next]
  }

  get newest(): StreamedEvent | undefined {
    return this.#events.at(-1)
  }

  shift(): void {
    this.#bytes -= this.head?.bytes.length ?? 0
    this.#next++
    if (this.#next < this.#events.length) return
    this.#events = []
    this.#next = 0
  }

  /** Requests more events unless a request is pending or enough events are buffered. */
  poll(awaitMs: number): void {
    if (this.pending || this.isEnded || this.error || !this.#cursor || this.#bytes > bufferedBytesMax) return
    const { id, collection, database } = this.#cursor
    const getMore = encode({ getMore: id, collection, maxTimeMS: awaitMs, $db: database })
    this.pending = this.#links
      .send(this.host, getMore)
      .then((reply) => this.#receive(reply))
      .catch((error) => {
        this.error = unreachable(error)
      })
      .finally(() => {
        this.pending = null
      })
  }

  #receive(reply: Buffer): void {
    const fields = readFields(reply)
    const cursor = fieldNamed(fields, 'cursor')
    if (!cursor) {
      this.error = reply
      return
    }
    const parts = readFields(cursor.value)
    const batch = fieldNamed(parts, 'nextBatch') as Field
    for (const { value } of readFields(batch.value)) {
      const token = tokenOf(value)
      if (this.#isSkipped(token)) continue
      this.#events.push({ token, bytes: value })
      this.#bytes += value.length
    }
    const highWater = fieldNamed(parts, 'postBatchResumeToken')
    if (highWater) this.highWater = decode(highWater.value)['_data']
    this.isEnded = fieldNamed(parts, 'id')?.value.readBigInt64LE() === 0n
  }

  async close(): Promise<void> {
    if (!this.#cursor || this.isEnded) return
    const { id, collection, database } = this.#cursor
    await this.#links.ask(this.host, database, { killCursors: collection, cursors: [id] })
  }
}

/** Returns the `_data` of an event's resume token, which is its `_id`. */
function tokenOf(event: Buffer): string {
  const id = findSpan(event, '_id')
  const token = id && documentAt(event, id.valueStart)
  const data = token && findSpan(token, '_data')
  if (!data) throw new CommandError(280, 'ChangeStreamFatalError', 'the pipeline removed the resume token of an event')
  return token.latin1Slice(data.valueStart + 4, data.valueEnd - 1)
}

function unreachable(error: unknown): Buffer {
  if (error instanceof CommandError) return error.reply
  const errmsg = error instanceof Error ? error.message : String(error)
  const reply: Document = { ok: 0, errmsg, code: 6, codeName: 'HostUnreachable' }
  return buildDocument(fieldsOf({ ...reply, errorLabels: ['ResumableChangeStreamError'] }))
}
