import { type Document, Timestamp } from 'mongodb'
import { type OwnerToken, parseOwner } from '../../src/domain/owner.ts'
import type { Clock } from './clock.ts'
import type { Content } from './content.ts'
import { CoordinatorInvariants } from './coordinator-invariants.ts'
import { CopyInvariants } from './copy-invariants.ts'
import type { Network } from './network.ts'
import type { Sender } from './operations.ts'
import type { Process } from './process.ts'
import type { Server, Witness } from './server.ts'
import { VerifierInvariants } from './verifier-invariants.ts'

export interface InvariantParts {
  clock: Clock
  content: Content
  source: Server
  destination: Network
  processes: () => Iterable<Process>
}

/** A DDL event and its index in the stream. */
interface Definition {
  at: number
  collection: number
  name: string
  creates: boolean
}

/**
 * Invariants that must hold at every step. Each one is checked only when something happens that could violate it, against facts that
 * only the world knows: what each process may write now by its own clock, and which version each document has reached.
 */
export class Invariants implements Witness {
  violation: string | null = null
  /** The newest version that each document has ever reached on the destination. */
  readonly #furthest: Int32Array
  /** For each partition: the indexes of its events in the stream. */
  readonly #events: number[][]
  /** For each partition: the number of its events that its stored position has passed. */
  readonly #passed: number[]
  /** For each partition: the index of the first event that its stored position has not passed. */
  readonly positions: number[]
  readonly #definitions: Definition[] = []
  readonly #owners = new Map<string, string>()
  readonly #parts: InvariantParts
  readonly #copy: CopyInvariants
  readonly #coordinator: CoordinatorInvariants
  readonly verifier: VerifierInvariants
  #leader: Process | null = null

  constructor(parts: InvariantParts) {
    this.#parts = parts
    const { clock, content, destination, source } = parts
    const { partitions, onDestination } = content
    const violated = (what: string) => this.#violated(what)
    this.#copy = new CopyInvariants({ content, destination, violated })
    this.#coordinator = new CoordinatorInvariants({ destination, violated })
    this.verifier = new VerifierInvariants({ clock, content, source, destination: () => destination.server, violated })
    this.#furthest = Int32Array.from(onDestination)
    this.#events = Array.from({ length: partitions }, () => [])
    this.#passed = new Array(partitions).fill(0)
    this.positions = new Array(partitions).fill(0)
  }

  #violated(what: string): void {
    this.violation ??= `${(this.#parts.clock.now / 1_000).toFixed(3)} s: ${what}`
  }

  /** Called when events have been added to the stream, beginning at this index. */
  published(from: number): void {
    const { content, source } = this.#parts
    for (let at = from; at < source.log.events.length; at++) {
      const { document } = source.log.events[at] as { document: number }
      if (document >= 0) this.#events[content.partitionOf(document)]?.push(at)
    }
  }

  /** Called when DDL has been added to the stream. */
  definition(at: number, collection: number, name: string, creates: boolean): void {
    this.#definitions.push({ at, collection, name, creates })
  }

  /**
   * Called when a document was written. Only the owner of its partition may write it; the instance that copies its
   * segment may also insert it. The write must not undo a change that the stored position has passed, unless the
   * document has a tombstone that is not reconciled yet.
   */
  wrote(sender: Sender, document: number, inserts: boolean): void {
    const { content, destination } = this.#parts
    const partition = content.partitionOf(document)
    const owner = destination.server.collection('ownership').get(partition)?.['owner']
    const isOwn = owner === sender.token
    if (!isOwn && !(inserts && this.#copy.isCopiedBy(sender, document))) {
      this.#violated(
        `${sender.token} of ${sender.host.name} wrote a document of partition ${partition}, which ${owner} owns`,
      )
    }
    content.foreign.delete(document)
    const reached = content.reached(document)
    if (reached > (this.#furthest[document] as number)) this.#furthest[document] = reached
    const next = content.published[document]?.[reached + 1]
    const isBehind = next !== undefined && next < (this.positions[partition] as number)
    if (isBehind && !this.#copy.isToBeReconciled(document)) {
      this.#violated(
        `document ${document} went back to version ${reached}, behind the position stored for partition ${partition}`,
      )
    }
  }

  stored(sender: Sender, collection: string, before: Document | undefined, after: Document): void {
    if (collection === 'ownership') this.#claimed(sender, before, after)
    else if (collection === 'positions' && after['_id'] >= 0) this.#moved(sender, before, after)
    else if (collection === 'positions') this.verifier.stored(sender, before, after)
    else if (collection === 'verifiedRanges') this.verifier.verified(after)
    else {
      this.#copy.stored(sender, collection, before, after)
      this.#coordinator.stored(sender, collection, before, after)
    }
  }

  removed(sender: Sender, collection: string, documents: Document[]): void {
    this.#copy.removed(sender, collection, documents)
    this.#coordinator.removed(sender, collection, documents)
  }

  #claimed(sender: Sender, before: Document | undefined, after: Document): void {
    const { _id: key, owner, epoch } = after
    const former = before?.['owner'] as string | null | undefined
    if (owner === null) {
      // The former owner may retry the release after it has lost its lease, because the write names the old lease term.
      const isRetry =
        sender.token === null && former && sender.appName.split(':')[1] === parseOwner(former as OwnerToken).id
      if (former !== sender.token && !isRetry) this.#violated(`${sender.token} released ${key}, which ${former} owned`)
      return
    }
    if (epoch !== (before?.['epoch'] ?? 0) + 1)
      this.#violated(`the claim on ${key} went from epoch ${before?.['epoch']} to ${epoch}`)
    const claim = `${key}:${epoch}`
    if (this.#owners.has(claim))
      this.#violated(`${this.#owners.get(claim)} and ${owner} both own ${key} in epoch ${epoch}`)
    this.#owners.set(claim, owner)
    if (former && this.#canWrite(former)) this.#violated(`${owner} took ${key} from ${former}, which can still write`)
  }

  /**
   * Returns whether a write of this owner may still take effect: the lease is valid by the owner's clock, or the server
   * still executes one of its writes.
   */
  #canWrite(token: string): boolean {
    const { clock, destination, processes } = this.#parts
    if (destination.operations.isWriting((sender) => sender.token === token)) return true
    for (const process of processes()) {
      if (process.host.state === 'gone' || process.token !== token) continue
      const { current } = clock
      clock.current = process.host
      const may = process.mayWrite
      clock.current = current
      if (may) return true
    }
    return false
  }

  #moved(sender: Sender, before: Document | undefined, after: Document): void {
    const { content, source, destination } = this.#parts
    const partition = after['_id'] as number
    const claim = destination.server.collection('ownership').get(partition)
    if (claim?.['epoch'] !== after['epoch'] || claim?.['owner'] !== sender.token) {
      this.#violated(
        `${sender.token} stored a position of partition ${partition} under epoch ${after['epoch']}; ${claim?.['owner']} owns it in epoch ${claim?.['epoch']}`,
      )
    }
    if (before && before['epoch'] > after['epoch'])
      this.#violated(`a position of partition ${partition} went back from epoch ${before['epoch']}`)
    const token = after['token']?._data as string | undefined
    const next = token === undefined ? source.log.from(after['time'] as Timestamp) : source.log.after(token)
    const former = this.positions[partition] as number
    this.positions[partition] = next
    const events = this.#events[partition] as number[]
    let passed = this.#passed[partition] as number
    while (passed > 0 && (events[passed - 1] as number) >= next) passed -= 1
    while (passed < events.length && (events[passed] as number) < next) {
      const event = source.log.events[events[passed] as number] as { document: number; version: number }
      const isApplied = content.reached(event.document) >= event.version || content.foreign.has(event.document)
      if (!isApplied && !this.#copy.isToBeReconciled(event.document)) {
        this.#violated(
          `the position of partition ${partition} passed version ${event.version} of document ${event.document}, which has reached ${content.reached(event.document)}`,
        )
      }
      passed += 1
    }
    this.#passed[partition] = passed
    for (let at = this.#definitions.length - 1; at >= 0; at--) {
      const definition = this.#definitions[at] as Definition
      if (definition.at < former) break
      if (definition.at < next && !this.#isFollowed(definition)) {
        this.#violated(
          `the position of partition ${partition} passed DDL (${definition.name}) that the destination has not applied`,
        )
      }
    }
  }

  #isFollowed({ collection, name, creates }: Definition): boolean {
    const wanted = this.#parts.source.indexes[collection]?.has(name) === true
    const exists = this.#parts.destination.server.indexes[collection]?.has(name) === true
    return creates ? exists || !wanted : !exists
  }

  /** Called when definitions changed on the destination. Only the coordinator may change them, after all earlier events are applied. */
  defined(sender: Sender): void {
    const { destination, source } = this.#parts
    const owner = destination.server.collection('ownership').get('coordinator')?.['owner']
    if (owner !== sender.token) this.#violated(`${sender.token} changed definitions while ${owner} is the coordinator`)
    const barrier = this.#barrier(sender)
    if (barrier === null) return
    for (const [partition, events] of this.#events.entries()) {
      for (let at = this.#passed[partition] as number; at < events.length && (events[at] as number) < barrier; at++) {
        const { document, version } = source.log.events[events[at] as number] as { document: number; version: number }
        if ((this.#furthest[document] as number) >= version) continue
        this.#violated(`definitions changed before version ${version} of document ${document} was applied`)
      }
    }
  }

  /**
   * Returns an index in the stream: all events before it must be applied when definitions change now. Null if no DDL is
   * due.
   */
  #barrier(sender: Sender): number | null {
    const { destination, source } = this.#parts
    const [open] = destination.server.collection('barriers').find({ done: false }, { _id: 1 }, 1)
    const key = open?.['_id'] as string | undefined
    const barrier = key
      ? source.log.from(
          new Timestamp({ t: Number.parseInt(key.slice(0, 8), 16), i: Number.parseInt(key.slice(8), 16) }),
        )
      : null
    const ownership = destination.server.collection('ownership')
    const ownsAll = this.positions.every((_, partition) => ownership.get(partition)?.['owner'] === sender.token)
    if (barrier !== null && !ownsAll) return barrier
    // An instance that owns all partitions needs no barrier. Its stored positions may be behind its applied events, and
    // a barrier that other instances reached earlier may be after the next DDL. The earlier of the two is the limit.
    const from = Math.min(...this.positions)
    const due = this.#definitions.find(({ at }) => at >= from)?.at ?? null
    return barrier === null || (due !== null && due < barrier) ? due : barrier
  }

  /** Called after each event of a process. */
  acted(process: Process): void {
    this.#copy.acted(process)
    const { coordination } = process.session
    if (!coordination.leading || !process.mayWrite) return
    const owner = this.#owners.get(`coordinator:${coordination.term}`)
    if (owner !== process.token)
      this.#violated(`${process.token} is coordinator in term ${coordination.term}, which belongs to ${owner}`)
    const other = this.#leader
    this.#leader = process
    if (!other || other === process || other.host.state === 'gone' || !other.session.coordination.leading) return
    const { clock } = this.#parts
    const { current } = clock
    clock.current = other.host
    if (other.mayWrite) this.#violated(`${process.token} and ${other.token} are coordinators at the same time`)
    clock.current = current
  }
}
