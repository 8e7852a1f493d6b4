import type { Binary, Document, Timestamp } from 'mongodb'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { RangeClaims } from '../../src/mongo/range-claims.ts'
import { type Share, SharedStream, type TakeBatch } from '../../src/mongo/shared-stream.ts'
import { bytesOf } from '../../src/mongo/stored-documents.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { streamPartition } from '../../src/verify/checkpoint.ts'
import { Rechecks, type Side } from '../../src/verify/rechecks.ts'
import type { Clock, Host } from './clock.ts'
import { type Content, collectionUuid } from './content.ts'
import { swap } from './mutation.ts'
import type { Sender } from './operations.ts'
import type { Server } from './server.ts'

export interface VerifierInvariantsParts {
  clock: Clock
  content: Content
  source: Server
  destination: () => Server
  violated: (what: string) => void
}

/** Offset of the int32 in an `_id` element. */
const idAt = 5

/**
 * Records which of the source's events each verifier has received, from its own stream or from event application. No verifier may store
 * a position beyond an event that its process has not received: after a restart, no verifier would read that event.
 */
export class VerifierInvariants {
  /** Number of batches that verifiers took from event application. */
  shared = 0
  /** Number of ranges that instances have compared for the verifier of another instance. */
  helped = 0
  /** For each process, the events that its verifiers have recorded. */
  readonly #recorded = new Map<Host | null, Set<string>>()
  readonly #parts: VerifierInvariantsParts

  constructor(parts: VerifierInvariantsParts) {
    this.#parts = parts
  }

  /** Begins to observe the product's code. Returns a function that ends the observation. */
  watch(): () => void {
    const self = this
    const reverts = [
      swap(
        Rechecks.prototype,
        'changed',
        (changed) =>
          function (this: unknown, ...given) {
            const [uuid, idElement, side, batch, time] = given as Parameters<Rechecks['changed']>
            self.#changed(uuid, idElement, side, batch, time)
            changed.apply(this, given)
          },
      ),
      swap(
        SharedStream.prototype,
        'join',
        (join) =>
          function (this: unknown, position, selected, take) {
            const counted: TakeBatch = (batch) => {
              const isTaken = (take as TakeBatch)(batch)
              if (isTaken) self.shared += 1
              return isTaken
            }
            return join.call(this, position, selected, counted) as Share | null
          },
      ),
    ]
    reverts.push(
      swap(
        RangeClaims.prototype,
        'complete',
        (complete) =>
          function (this: unknown, offer, results) {
            self.helped += (results as unknown[]).filter((result) => result !== null).length
            return complete.call(this, offer, results)
          },
      ),
    )
    return () => {
      for (const revert of reverts) revert()
    }
  }

  #changed(_: string, idElement: Buffer, side: Side, __: number, time: bigint): void {
    if (side !== 'source') return
    const { current } = this.#parts.clock
    const recorded = this.#recorded.get(current) ?? new Set()
    this.#recorded.set(current, recorded.add(`${idElement.readInt32LE(idAt)} ${time}`))
  }

  /** Called when a position was stored. */
  stored(sender: Sender, before: Document | undefined, after: Document): void {
    if (after['_id'] !== streamPartition.source || !before) return
    const { events } = this.#parts.source.log
    const recorded = this.#recorded.get(sender.host)
    const end = this.#placeOf(after)
    for (let at = this.#placeOf(before); at < end; at++) {
      const { document, version, second, ordinal } = events[at] as (typeof events)[number]
      if (document < 0 || recorded?.has(`${document} ${clusterTime(second, ordinal)}`)) continue
      this.#parts.violated(
        `the verifier's position passed version ${version} of document ${document}, which ${sender.token} has not recorded`,
      )
    }
  }

  /** Called when a range was stored as verified: both clusters must have been read from its beginning to its end. */
  verified({ _id, collection: uuid, ordinal }: Document): void {
    const { content, source, destination, violated } = this.#parts
    const segment = destination().collection('segments').get(_id)
    const collection = Array.from({ length: content.collections }, (_, at) => at).find(
      (at) => collectionUuid('source', at) === fromUuid(uuid),
    )
    if (collection === undefined) return
    const from = int32Bound(segment?.['from']) ?? collection
    const to = int32Bound(segment?.['to']) ?? content.count
    for (let document = from; document < to; document += content.collections) {
      const unread = [source, destination()].find(({ walks }) => !walks.passed.has(document))
      if (unread) {
        violated(
          `range ${ordinal} of collection ${collection} is verified, but its document ${document} was not read on the ${unread.side}`,
        )
      }
    }
  }

  #placeOf(position: Document): number {
    const token = position['token']?._data as string | undefined
    const { log } = this.#parts.source
    return token === undefined ? log.from(position['time'] as Timestamp) : log.after(token)
  }
}

/** Returns the value of a stored bound, which is a typed int32; undefined if there is no bound. */
function int32Bound(bound: Binary | null | undefined): number | undefined {
  return bound ? bytesOf(bound).readInt32LE(1) : undefined
}
