import { BSON, Timestamp, UUID } from 'mongodb'
import { type Content, collectionUuid, encodeDocument } from './content.ts'

/** A cluster time. */
export interface Moment {
  second: number
  ordinal: number
}

export interface Logged extends Moment {
  kind: 'insert' | 'replace' | 'update' | 'delete' | 'createIndexes' | 'dropIndexes'
  collection: number
  /** Number of the document; -1 for DDL. */
  document: number
  version: number
}

export const database = 'shop'
export function collectionName(collection: number): string {
  return `things${collection}`
}

export function isLater(one: Moment, other: Moment): boolean {
  return one.second > other.second || (one.second === other.second && one.ordinal > other.ordinal)
}

/** The end of a token that sorts after every event of its cluster time. */
const afterAll = 'ffffffffff'

/** One cluster's change stream: its events in order, up to the frontier. No event at or before the frontier can be added later. */
export class EventLog {
  readonly events: Logged[] = []
  readonly side: 'source' | 'destination'
  /** `events` contains every event up to this cluster time. */
  frontier: Moment = { second: 0, ordinal: 0 }
  onPublished: () => void = () => {}
  readonly #content: Content
  readonly #templates = new Map<string, Template>()

  constructor(side: 'source' | 'destination', content: Content) {
    this.side = side
    this.#content = content
  }

  tokenOf(at: number): string {
    const event = this.events[at] as Logged
    return `82${hex(event.second, 8)}${hex(event.ordinal, 8)}${hex(at, 10)}`
  }

  get frontierToken(): string {
    return `82${hex(this.frontier.second, 8)}${hex(this.frontier.ordinal, 8)}${afterAll}`
  }

  /** Returns the index of the first event after a token. */
  after(token: string): number {
    const place = token.slice(18)
    if (place !== afterAll) return Number.parseInt(place, 16) + 1
    return this.#firstFrom({
      second: Number.parseInt(token.slice(2, 10), 16),
      ordinal: Number.parseInt(token.slice(10, 18), 16) + 1,
    })
  }

  /** Returns the index of the first event whose cluster time is `time` or later. */
  from(time: Timestamp): number {
    return this.#firstFrom({ second: time.getHighBitsUnsigned(), ordinal: time.getLowBitsUnsigned() })
  }

  #firstFrom(moment: Moment): number {
    let low = 0
    let high = this.events.length
    while (low < high) {
      const middle = (low + high) >> 1
      if (isLater(moment, this.events[middle] as Logged)) low = middle + 1
      else high = middle
    }
    return low
  }

  /** Encodes an event as the server sends it. */
  encode(at: number, identitiesOnly: boolean): Buffer {
    const event = this.events[at] as Logged
    const carries = !identitiesOnly && (event.kind === 'insert' || event.kind === 'replace')
    const key = `${event.kind} ${event.collection} ${carries}`
    let template = this.#templates.get(key)
    if (!template) {
      template = new Template(this.side, event, carries)
      this.#templates.set(key, template)
    }
    return template.fill(this.tokenOf(at), event)
  }

  partitionOf(event: Logged): number {
    return this.#content.partitionOf(event.document)
  }
}

function hex(value: number, digits: number): string {
  return value.toString(16).padStart(digits, '0')
}

const someToken = '8'.repeat(28)
const someId = 0x7a7b7c7d

/**
 * An encoded event of one kind and collection. `fill` copies it and writes the token, the cluster time and the document
 * of an event into the copy.
 */
class Template {
  readonly #bytes: Buffer
  readonly #tokenAt: number
  readonly #timeAt: number
  readonly #idAt: number
  readonly #documentAt: number

  constructor(side: 'source' | 'destination', { kind, collection, document }: Logged, carries: boolean) {
    const placeholder = encodeDocument(someId, someId)
    this.#bytes = Buffer.from(
      BSON.serialize({
        _id: { _data: someToken },
        operationType: kind,
        clusterTime: new Timestamp({ t: someId, i: someId }),
        collectionUUID: new UUID(Buffer.from(collectionUuid(side, collection), 'latin1')),
        ns: { db: database, coll: collectionName(collection) },
        ...(document >= 0 ? { documentKey: { _id: someId } } : {}),
        ...(carries ? { fullDocument: BSON.deserialize(placeholder) } : {}),
      }),
    )
    this.#tokenAt = this.#bytes.indexOf(someToken)
    this.#timeAt = this.#bytes.indexOf('clusterTime\0') + 12
    const keyAt = this.#bytes.indexOf('documentKey\0')
    this.#idAt = keyAt < 0 ? -1 : this.#bytes.indexOf('_id\0', keyAt) + 4
    this.#documentAt = carries ? this.#bytes.indexOf('fullDocument\0') + 13 : -1
  }

  fill(token: string, event: Logged): Buffer {
    const bytes = Buffer.from(this.#bytes)
    bytes.write(token, this.#tokenAt, 'latin1')
    bytes.writeUInt32LE(event.ordinal, this.#timeAt)
    bytes.writeUInt32LE(event.second, this.#timeAt + 4)
    if (this.#idAt >= 0) bytes.writeInt32LE(event.document, this.#idAt)
    if (this.#documentAt >= 0) encodeDocument(event.document, event.version).copy(bytes, this.#documentAt)
    return bytes
  }
}
