import { setTimeout as sleep } from 'node:timers/promises'
import { type ClientSession, MaxKey, MinKey, MongoClient } from 'mongodb'
import { Random } from './random.ts'
import type { ShardedCluster } from './sharded-cluster.ts'
import { ShardedDefinitions } from './sharded-definitions.ts'
import { classify } from './workload-errors.ts'

interface Kind {
  name: string
  key: Record<string, 1 | 'hashed'> | null
}

/** Shard keys that differ in the fields that a write must specify: none, `_id`, other fields, fields that may be missing. */
const kinds: Kind[] = [
  { name: 'ranged', key: { k: 1 } },
  { name: 'dotted', key: { 'a.b': 1, k: 1 } },
  { name: 'hashedField', key: { k: 'hashed' } },
  { name: 'withId', key: { k: 1, _id: 1 } },
  { name: 'hashedId', key: { _id: 'hashed' } },
  { name: 'plain', key: null },
]

/** Returns the zone ranges of the workload's collection with zones, as text. */
export async function zonesOf(client: MongoClient): Promise<string> {
  const ranges = client
    .db('config')
    .collection('tags')
    .find({ ns: `app.${repeated}` }, { projection: { _id: 0 } })
  return JSON.stringify(await ranges.sort({ min: 1 }).toArray())
}

/** The collection whose documents share `_id`s, one in each zone, with the option `repeated`. */
const repeated = 'repeated'
/** The value of `k` at which the zones of `repeated` meet. */
const zoneBoundary = 20
/** Chance that a step of a workload with `repeated` changes that collection. */
const repeatedChance = 0.15

const idsMax = 300
const keysMax = 40
const retryable = new Set([11_000, 112, 244, 246, 251, 13_388, 28, 61])
/** An election or the restart of a router ends within this many attempts, 100 ms apart, even on a busy machine. */
const transientAttemptsMax = 300

/**
 * A random writer on a sharded cluster. It inserts, updates and deletes documents, and updates shard keys, which moves documents
 * between shards while chunks move as well. Within a collection it keeps `_id` unique, as applications should. With the option
 * `repeated`, one collection has zones, and often two documents with one `_id`, one in each zone.
 */
export class ShardedWorkload {
  readonly #client: MongoClient
  readonly #cluster: ShardedCluster | null
  readonly #random: Random
  readonly #balancer: boolean
  readonly #repeated: boolean
  readonly counts: Record<string, number> = {}

  readonly #definitions: ShardedDefinitions | null

  /**
   * @param cluster null for a replica set, on which no collection is sharded
   * @param options `ddl` also creates, renames and drops collections and indexes; `balancer` keeps the balancer on;
   * `repeated` writes documents with one `_id` on two shards, which only an equally sharded destination can hold
   */
  constructor(
    uri: string,
    cluster: ShardedCluster | null,
    seed: string,
    options: { ddl?: boolean; balancer?: boolean; repeated?: boolean } = {},
  ) {
    this.#balancer = options.balancer ?? false
    this.#repeated = (options.repeated ?? false) && cluster !== null
    this.#client = new MongoClient(uri, { retryWrites: false })
    this.#cluster = cluster
    this.#random = new Random(seed)
    this.#definitions = options.ddl ? new ShardedDefinitions(this.#client, this.#random, cluster !== null) : null
  }

  async create(): Promise<void> {
    const admin = this.#client.db('admin')
    if (this.#cluster) {
      await admin.command({ [this.#balancer ? 'balancerStart' : 'balancerStop']: 1 })
      await admin.command({ enableSharding: 'app', primaryShard: this.#cluster.shards[0]?.name })
    }
    for (const { name, key } of kinds) {
      const collection = this.#client.db('app').collection(name)
      await collection.createIndex({ u: 1 })
      if (key) await collection.createIndex(key)
      if (this.#cluster && key) await admin.command({ shardCollection: `app.${name}`, key })
      await collection.insertMany(Array.from({ length: idsMax }, (_, id) => this.#document(id)) as never[])
      if (this.#cluster && key && Object.values(key)[0] === 1) {
        for (const splitPoint of [10, 25]) {
          const middle = Object.fromEntries(Object.keys(key).map((field, at) => [field, at === 0 ? splitPoint : 0]))
          await this.#cluster.split(`app.${name}`, middle)
        }
        await this.#move(name, 10, 1)
      }
    }
    if (this.#repeated && this.#cluster) await this.#createRepeated(this.#cluster)
  }

  /** The zones keep the documents with one `_id` apart, on the source and on a destination to which the zones are copied. */
  async #createRepeated(cluster: ShardedCluster): Promise<void> {
    const admin = this.#client.db('admin')
    const [lower, upper] = cluster.shards.map(({ name }) => name)
    await admin.command({ addShardToZone: lower, zone: 'lower' })
    await admin.command({ addShardToZone: upper, zone: 'upper' })
    const collection = this.#client.db('app').collection<{ _id: number }>(repeated)
    await collection.createIndex({ k: 1 })
    // Ranges of a collection that does not exist yet, so that its chunks are created in their zones.
    const [min, middle, max] = [new MinKey(), zoneBoundary, new MaxKey()]
    for (const [from, to, zone] of [
      [min, middle, 'lower'],
      [middle, max, 'upper'],
    ]) {
      await admin.command({ updateZoneKeyRange: `app.${repeated}`, min: { k: from }, max: { k: to }, zone })
    }
    await admin.command({ shardCollection: `app.${repeated}`, key: { k: 1 } })
    const documents = Array.from({ length: idsMax }, (_, _id) => ({ _id, k: this.#keyIn(_id % 2 === 0) }))
    const seconds = documents.slice(0, idsMax / 2).map(({ _id, k }) => ({ _id, k: this.#keyIn(k >= zoneBoundary) }))
    await collection.insertMany([...documents, ...seconds])
  }

  #keyIn(isLower: boolean): number {
    return isLower ? this.#random.int(0, zoneBoundary - 1) : this.#random.int(zoneBoundary, keysMax)
  }

  /** The shard keys in the format of the start request's `sharding`. */
  static get shardingEntries() {
    return kinds.flatMap(({ name, key }) =>
      key
        ? [
            {
              database: 'app',
              collection: name,
              shardCollection: { key: Object.entries(key).map(([field, way]) => ({ [field]: way })) },
            },
          ]
        : [],
    )
  }

  /** The shard keys in the format of the comparisons. */
  static get shardKeys(): Record<string, string> {
    return Object.fromEntries(kinds.flatMap(({ name, key }) => (key ? [[`app.${name}`, JSON.stringify(key)]] : [])))
  }

  /** Moves chunks back and forth until aborted. */
  async pingPong(everyMS: number, signal: AbortSignal): Promise<void> {
    const random = new Random('ping-pong')
    while (!signal.aborted && this.#cluster) {
      await sleep(everyMS, undefined, { signal }).catch(() => {})
      if (signal.aborted) return
      await this.#move(random.pick(['ranged', 'dotted', 'withId']), random.int(0, keysMax), random.int(0, 1))
    }
  }

  async run(steps: number): Promise<void> {
    for (let step = 0; step < steps; step++) await this.#step()
  }

  async close(): Promise<void> {
    await this.#client.close()
  }

  #document(id: number): Record<string, unknown> {
    const random = this.#random
    const document: Record<string, unknown> = { _id: id, u: random.int(0, 1_000_000) }
    if (!random.chance(0.1)) document['k'] = random.int(0, keysMax)
    if (!random.chance(0.2)) document['a'] = random.chance(0.8) ? { b: random.int(0, keysMax) } : random.int(0, 9)
    return document
  }

  async #step(): Promise<void> {
    const random = this.#random
    const kind = random.pick(kinds)
    const id = random.int(0, idsMax)
    if (this.#definitions && random.chance(0.06)) {
      const what = await this.#definitions.change()
      this.counts[what] = (this.counts[what] ?? 0) + 1
    }
    if (this.#repeated && random.chance(repeatedChance)) return await this.#stepOfRepeated()
    const [what, work] = random.pick<[string, (session: ClientSession) => Promise<unknown>]>([
      ['replace', (session) => this.#replace(kind, id, session)],
      ['replace', (session) => this.#replace(kind, id, session)],
      ['update', (session) => this.#collection(kind).updateOne({ _id: id }, { $inc: { n: 1 } }, { session })],
      ['delete', (session) => this.#collection(kind).deleteMany({ _id: id }, { session })],
    ])
    if (random.chance(0.02) && this.#cluster) {
      await this.#move(
        random.pick(['ranged', 'dotted', 'withId']),
        random.int(0, keysMax),
        random.int(0, this.#cluster.shards.length - 1),
      )
    }
    await this.#transaction(what, work)
  }

  /** Changes one document of a zone, whether or not the other zone has a document with its `_id`. */
  async #stepOfRepeated(): Promise<void> {
    const random = this.#random
    const [_id, isLower] = [random.int(0, idsMax), random.chance(0.5)]
    const zone = isLower ? { $lt: zoneBoundary } : { $gte: zoneBoundary }
    const [k, to, n] = [this.#keyIn(isLower), this.#keyIn(random.chance(0.7) === isLower), random.int(0, 1_000_000)]
    const step = random.pick(['insert', 'update', 'rekey', 'replace', 'remove'])
    await this.#transaction(`${step} one of two`, async (session) => {
      const collection = this.#client.db('app').collection<{ _id: number; k: number; n?: number }>(repeated)
      const one = await collection.findOne({ _id, k: zone }, { session })
      if (!one || step === 'insert') {
        if (!one) await collection.insertOne({ _id, k, n }, { session })
        return
      }
      const existing = { _id, k: one.k }
      if (step === 'update') await collection.updateOne(existing, { $set: { n } }, { session })
      if (step === 'replace') await collection.replaceOne(existing, { k: one.k, n }, { session })
      if (step === 'remove') await collection.deleteOne(existing, { session })
      // A change to the other zone moves the document to the other shard, unless that shard has one with this `_id`.
      const isMoving = to < zoneBoundary !== isLower
      const isTaken = isMoving && (await collection.find({ _id }, { session }).toArray()).length > 1
      if (step === 'rekey' && !isTaken) await collection.updateOne(existing, { $set: { k: to, n } }, { session })
    })
  }

  /** Deletes the document on all shards and inserts the new one in one transaction, as a mongos moves a document. */
  async #replace(kind: Kind, id: number, session: ClientSession): Promise<void> {
    const document = this.#document(id)
    await this.#collection(kind).deleteMany({ _id: id }, { session })
    await this.#collection(kind).insertOne(document as never, { session })
  }

  #collection({ name }: Kind) {
    return this.#client.db('app').collection<{ _id: number }>(name)
  }

  async #transaction(what: string, work: (session: ClientSession) => Promise<unknown>): Promise<void> {
    for (let attempt = 0; ; attempt++) {
      const session = this.#client.startSession()
      try {
        session.startTransaction({ writeConcern: { w: 'majority' } })
        await work(session)
        await session.commitTransaction()
        this.counts[what] = (this.counts[what] ?? 0) + 1
        return
      } catch (error) {
        await session.abortTransaction().catch(() => {})
        // A commit of unknown outcome may have taken effect. Both outcomes are valid contents of the source.
        const isTransient = classify(error).kind === 'transient' && attempt < transientAttemptsMax
        const isRetryable = attempt <= 20 && retryable.has((error as { code?: number }).code ?? 0)
        if (!isTransient && !isRetryable) throw error
        await sleep(isTransient ? 100 : 20)
      } finally {
        await session.endSession()
      }
    }
  }

  async #move(name: string, value: number, shard: number): Promise<void> {
    const { key } = kinds.find((kind) => kind.name === name) as Kind
    const nested = (field: string): Record<string, unknown> =>
      field === 'a.b' ? { a: { b: value } } : { [field]: value }
    const find = Object.assign({}, ...Object.keys(key ?? {}).map(nested))
    try {
      await this.#cluster?.moveChunk(`app.${name}`, find, shard)
      this.counts['moveChunk'] = (this.counts['moveChunk'] ?? 0) + 1
    } catch (error) {
      // The chunk is already moving, or transactions block its move.
      this.counts['moveRefused'] = (this.counts['moveRefused'] ?? 0) + 1
      if (!(error instanceof Error)) throw error
    }
  }
}
