import type { Document, Timestamp } from 'mongodb'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { type Share, SharedStream, type TakeBatch } from '../../src/mongo/shared-stream.ts'
import { streamPartition } from '../../src/verify/checkpoint.ts'
import { Rechecks, type Side } from '../../src/verify/rechecks.ts'
import type { Clock, Host } from './clock.ts'
import { swap } from './mutation.ts'
import type { Sender } from './network.ts'
import type { Server } from './server.ts'

export interface VerifierInvariantsParts {
  clock: Clock
  source: Server
  violated: (what: string) => void
}

/** Where the int32 is in an `_id` element. */
const idAt = 5

/**
 * What the verifiers have learned of the source's events, in whichever way, and that none of them stores a position beyond an event
 * that it has not recorded itself: what it has not stored is lost with its process.
 */
export class VerifierInvariants {
  /** Batches that verifiers took from event application. */
  shared = 0
  /** Of each process, the events that its verifiers have recorded. */
  readonly #recorded = new Map<Host | null, Set<string>>()
  readonly #parts: VerifierInvariantsParts

  constructor(parts: VerifierInvariantsParts) {
    this.#parts = parts
  }

  /** Begins to watch the product's code; returns what ends that. */
  watch(): () => void {
    const self = this
    const reverts = [
      swap(
        Rechecks.prototype,
        'changed',
        (changed) =>
          function (this: unknown, ...given) {
            self.#changed(...(given as Parameters<Rechecks['changed']>))
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

  /** A position was stored. */
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

  #placeOf(position: Document): number {
    const token = position['token']?._data as string | undefined
    const { log } = this.#parts.source
    return token === undefined ? log.from(position['time'] as Timestamp) : log.after(token)
  }
}
