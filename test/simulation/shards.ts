import type { Random } from '../support/random.ts'
import { type Clock, epochMS } from './clock.ts'
import type { Content } from './content.ts'
import { type EventLog, isLater, type Logged, type Moment } from './event-log.ts'

interface Shard {
  skewMS: number
  drift: number
  /** The newest cluster time that the shard knows: its own, or a later one that it has received. */
  known: Moment
  pending: Logged[]
  /** True time until which the shard does not answer. */
  silentUntil: number
}

/**
 * Interval in ms at which the router merges the shards' events. A shard that lags holds back the events of all shards.
 */
const mergeMS = 50

/**
 * The source's shards, each with a wall clock of its own, and the router's change stream over all of them. Cluster times are hybrid: a
 * shard's own wall clock, or a later time that it has received. An event is published once no shard can produce an earlier one.
 */
export class Shards {
  readonly #shards: Shard[]
  readonly #home: Int32Array
  readonly #random: Random
  readonly #clock: Clock
  readonly #content: Content
  readonly #log: EventLog

  constructor(
    count: number,
    skewMaxMS: number,
    driftMax: number,
    clock: Clock,
    random: Random,
    log: EventLog,
    content: Content,
  ) {
    this.#clock = clock
    this.#random = random
    this.#log = log
    this.#content = content
    this.#home = new Int32Array(content.count)
    for (let document = 0; document < content.count; document++) this.#home[document] = random.int(0, count - 1)
    this.#shards = Array.from({ length: count }, () => ({
      skewMS: (random.fraction() * 2 - 1) * skewMaxMS,
      drift: (random.fraction() * 2 - 1) * driftMax,
      known: { second: 0, ordinal: 0 },
      pending: [],
      silentUntil: 0,
    }))
    this.#gossip(1)
    this.#merge()
  }

  /** The newest cluster time that any shard knows. */
  get latest(): Moment {
    let latest: Moment = { second: 0, ordinal: 0 }
    for (const { known } of this.#shards) if (isLater(known, latest)) latest = known
    return latest
  }

  /** Called when events have been added to the log. `from` is the index of the first new event. */
  onMerged: (from: number) => void = () => {}

  write(event: Omit<Logged, 'second' | 'ordinal'>): void {
    this.writeTogether([event])
  }

  /** Writes changes with one cluster time, as a transaction does. On each participating shard, earlier events have earlier times and later events later ones. */
  writeTogether(events: Omit<Logged, 'second' | 'ordinal'>[]): void {
    const parts = events.map(
      (event) => this.#shards[event.document < 0 ? 0 : (this.#home[event.document] as number)] as Shard,
    )
    const moment = parts.map((shard) => this.#tick(shard)).reduce((one, other) => (isLater(one, other) ? one : other))
    for (const [at, shard] of parts.entries()) {
      shard.known = moment
      shard.pending.push({ ...(events[at] as Logged), ...moment })
    }
  }

  /** Writes a no-op to the oplog of every shard. */
  note(): void {
    for (const shard of this.#shards) shard.known = this.#tick(shard)
    this.#gossip(1)
  }

  /** Moves the chunk with this document: its next events come from another shard, which has received the donor's cluster time. */
  move(document: number): void {
    const from = this.#shards[this.#home[document] as number] as Shard
    const to = this.#random.int(0, this.#shards.length - 1)
    const there = this.#shards[to] as Shard
    if (isLater(from.known, there.known)) there.known = from.known
    this.#home[document] = to
  }

  silence(milliseconds: number): void {
    this.#random.pick(this.#shards).silentUntil = this.#clock.now + milliseconds
  }

  #wall(shard: Shard): number {
    return Math.floor((epochMS + this.#clock.now * (1 + shard.drift) + shard.skewMS) / 1_000)
  }

  #tick(shard: Shard): Moment {
    const wall = this.#wall(shard)
    if (wall > shard.known.second) return { second: wall, ordinal: 1 }
    return { second: shard.known.second, ordinal: shard.known.ordinal + 1 }
  }

  #gossip(share: number): void {
    const { latest } = this
    for (const shard of this.#shards) {
      if (share < 1 && !this.#random.chance(share)) continue
      const wall = this.#wall(shard)
      if (wall > shard.known.second) shard.known = { second: wall, ordinal: 0 }
      if (isLater(latest, shard.known)) shard.known = latest
    }
  }

  #merge(): void {
    this.#clock.after(mergeMS, null, () => this.#merge(), false)
    this.#gossip(0.5)
    let frontier: Moment | null = null
    for (const { known, silentUntil } of this.#shards) {
      if (silentUntil > this.#clock.now) return
      if (!frontier || isLater(frontier, known)) frontier = known
    }
    if (!frontier || !isLater(frontier, this.#log.frontier)) return
    const ready: Logged[] = []
    for (const shard of this.#shards) {
      let until = 0
      while (until < shard.pending.length && !isLater(shard.pending[until] as Logged, frontier)) until += 1
      if (until > 0) ready.push(...shard.pending.splice(0, until))
    }
    // The sort is stable, so events of one shard with the same cluster time keep their order.
    ready.sort((one, other) => one.second - other.second || one.ordinal - other.ordinal)
    const from = this.#log.events.length
    for (const event of ready) {
      const at = this.#log.events.push(event) - 1
      const published = this.#content.published[event.document]
      if (published) published[event.version] = at
    }
    this.#log.frontier = frontier
    this.onMerged(from)
    this.#log.onPublished()
  }
}
