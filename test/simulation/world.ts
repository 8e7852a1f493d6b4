import { freshSync } from '../../machines/sync-context.ts'
import { SyncStore } from '../../src/coordination/sync-store.ts'
import type { CatalogEntry, Segment } from '../../src/domain/catalog.ts'
import { clusterTime } from '../../src/domain/cluster-time.ts'
import { noLimits } from '../../src/domain/limits.ts'
import { bsonType } from '../../src/domain/raw-bson.ts'
import { Cluster } from '../../src/mongo/cluster.ts'
import { Metadata, type SyncRecord } from '../../src/mongo/metadata.ts'
import { RetryMonitor } from '../../src/mongo/retry.ts'
import { configuration } from '../machines/instance-model.ts'
import { Random } from '../support/random.ts'
import { mutationOf } from './breaks.ts'
import { Clock, type Host, hostOf } from './clock.ts'
import { Content, collectionUuid } from './content.ts'
import { collectionName, database } from './event-log.ts'
import { Instance } from './instance.ts'
import { Invariants } from './invariants.ts'
import { Network } from './network.ts'
import { partitionsMin, type WorldOptions } from './options.ts'
import { Process } from './process.ts'
import { Server } from './server.ts'
import { Shards } from './shards.ts'
import { SimulatedLiveness } from './simulated-liveness.ts'
import { Workload } from './workload.ts'

/** Both clusters, the instances and their processes, the workload, and the invariants that observe them. */
export class World {
  readonly options: WorldOptions
  readonly clock = new Clock()
  readonly content: Content
  readonly source: Network
  readonly destination: Network
  readonly shards: Shards
  readonly workload: Workload
  readonly invariants: Invariants
  readonly instances: Instance[] = []
  readonly livenessStore: SimulatedLiveness | null
  /** Whether no more faults are injected. */
  calm = false
  /** Number of failures of processes by error name. */
  readonly failures = new Map<string, number>()
  readonly #processes = new Set<Process>()
  readonly #hosts = new Map<Host, Process>()
  #record: SyncRecord | null = null
  #bytesPerSecond: number | null = null

  constructor(options: WorldOptions) {
    this.options = options
    const random = new Random(options.seed)
    const partitions = Math.max(partitionsMin, options.shards)
    this.content = new Content(options.documents, options.collections, partitions)
    for (let document = 0; document < options.documents; document++)
      if (random.chance(0.5)) this.content.preload(document, !options.copies)
    const source = new Server('source', this.clock, this.content)
    this.source = new Network(source, this.clock, random.fork('source'))
    this.destination = new Network(
      new Server('destination', this.clock, this.content),
      this.clock,
      random.fork('destination'),
    )
    const { shards, skewMaxMS, driftMax, rate } = options
    this.shards = new Shards(shards, skewMaxMS, driftMax, this.clock, random.fork('shards'), source.log, this.content)
    source.latest = () => this.shards.latest
    source.onNote = () => this.shards.note()
    this.workload = new Workload({
      clock: this.clock,
      random: random.fork('workload'),
      content: this.content,
      source,
      shards: this.shards,
      rate,
      definitionRate: options.definitionRate,
    })
    this.invariants = new Invariants({
      clock: this.clock,
      content: this.content,
      source,
      destination: this.destination,
      processes: () => this.#processes,
    })
    this.shards.onMerged = (from) => {
      this.invariants.published(from)
      for (let at = from; at < source.log.events.length; at++) {
        if ((source.log.events[at]?.document ?? 0) >= 0) continue
        const defined = this.workload.defined.shift()
        if (defined) this.invariants.definition(at, defined.collection, defined.name, defined.creates)
      }
    }
    this.livenessStore = random.chance(0.3) ? new SimulatedLiveness(this.clock) : null
    for (let at = 0; at < options.instances; at++) {
      this.instances.push(new Instance(this, `i${at}`, random.fork(`instance ${at}`)))
    }
    if (options.copies) this.#workSlowly(new Random(`copy ${options.seed}`), () => this.isCopied)
    else if (options.verifies) this.#workSlowly(new Random(`verify ${options.seed}`), () => this.isInitiallyVerified)
    if (options.breaks) mutationOf(options.breaks).world?.(this.destination)
    if (options.guarded) this.destination.server.alter = (_, statement) => statement
  }

  /** Creates the metadata of a sync whose collections are all copied, or not planned yet. No change has been applied. */
  initialise(): void {
    this.clock.after(0, null, () => void this.#initialise())
  }

  get initialised(): boolean {
    return this.#record !== null
  }

  async #initialise(): Promise<void> {
    const setupHost = hostOf('nobody', 'nobody', 2)
    const destination = new Cluster('cluster1', 'mongodb://simulated', 'tandem:nobody:nobody')
    Object.assign(destination, { client: this.destination.client(setupHost, 'tandem:nobody:nobody', () => null) })
    const context = { monitor: new RetryMonitor(), signal: new AbortController().signal }
    const metadata = new Metadata(destination, context)
    // A sync begins with an oplog no-op on every shard, so later writes have later cluster times on every shard.
    this.shards.note()
    const { second, ordinal } = this.source.server.latest()
    const record: SyncRecord = {
      configuration: { ...configuration, verification: { enabled: true, initialCompareMethod: 'binary' } },
      sourceIdentity: 'source',
      destinationIdentity: 'destination',
      startTime: clusterTime(second, ordinal),
      partitions: this.content.partitions,
      redis: this.livenessStore !== null,
      generation: 0,
    }
    await metadata.createSync(record)
    await metadata.collections.save(
      Array.from({ length: this.options.collections }, (_, at) => entryOf(at, this.options.copies)),
    )
    if (this.options.verifies) await metadata.segments.plan(this.#copiedSegments())
    await metadata.beginPartitions(record.partitions, { kind: 'time', time: record.startTime })
    await new SyncStore(destination, context, 0).begin({ revision: 0, value: 'replicating', context: freshSync })
    this.destination.server.witness = this.invariants
    this.#record = record
  }

  /** Whether every collection is stored as copied. */
  get isCopied(): boolean {
    const cataloged = this.destination.server.collection('collections').documents()
    return cataloged.every(({ state }) => state === 'copied')
  }

  /** Whether the verifier has compared everything once. */
  get isInitiallyVerified(): boolean {
    const stored = this.destination.server.collection('stages').get('sync')
    return stored?.['context'].initiallyVerified === true
  }

  /** Returns the segments of a copy that has ended, which are the ranges of the verifier. */
  #copiedSegments(): Segment[] {
    const { collections, documents } = this.options
    const step = collections * documentsPerRange
    const progress = { last: null, natural: null, done: true, documents: 0, bytes: 0, attempts: 1 }
    return Array.from({ length: collections }, (_, collection) =>
      Array.from({ length: Math.ceil((documents - collection) / step) }, (_, ordinal) => {
        const first = collection + ordinal * step
        return {
          ...{ collection: collectionUuid('source', collection), ordinal, priority: ordinal, claim: 0, wasOwn: false },
          from: ordinal === 0 ? null : typedInt32(first),
          to: first + step >= documents ? null : typedInt32(first + step),
          ...progress,
        }
      }),
    ).flat()
  }

  /**
   * Slows the copy or the verifier's first pass down, so that changes and faults happen between a plan and its end, and
   * while a range is read.
   */
  #workSlowly(random: Random, isOver: () => boolean): void {
    this.#bytesPerSecond = random.int(40, 400)
    this.source.server.walks.batchMax = random.int(1, 8)
    this.source.operations.readsSlowly = true
    const poll = (): void => {
      if (!this.calm && !(this.initialised && isOver())) {
        this.clock.after(200, null, poll, false)
        return
      }
      this.#bytesPerSecond = null
      this.source.server.walks.batchMax = Number.POSITIVE_INFINITY
      this.source.operations.readsSlowly = false
      // Work that waits for the throttle continues in its own process, by that host's clock.
      for (const { host, throttle } of this.#processes) this.clock.after(0, host, () => throttle.set(noLimits))
    }
    poll()
  }

  process(id: string, host: Host, incarnation: string): Process {
    const made = new Process({
      id,
      host,
      incarnation,
      source: this.source,
      destination: this.destination,
      record: this.#record as SyncRecord,
      copies: this.options.copies,
      bytesPerSecond: this.#bytesPerSecond,
      liveness: this.livenessStore ? () => (this.livenessStore as SimulatedLiveness).liveness() : null,
      onFailed: (process, what) => this.#failed(process, what),
      alter: (process) => this.options.breaks && mutationOf(this.options.breaks).process?.(process),
    })
    this.#processes.add(made)
    this.#hosts.set(host, made)
    return made
  }

  /** Ends a process. Its operations on the servers continue. */
  end(process: Process): void {
    process.host.state = 'gone'
    this.#processes.delete(process)
    this.#hosts.delete(process.host)
  }

  processesOf(id: string): Process[] {
    return [...this.#processes].filter((process) => process.id === id)
  }

  get processes(): Process[] {
    return [...this.#processes]
  }

  processAt(host: Host): Process | undefined {
    return this.#hosts.get(host)
  }

  /** Changes or deletes a document on the destination by a foreign write. */
  tamper(random: Random): void {
    const document = random.int(0, this.content.count - 1)
    this.content.foreign.add(document)
    const present = this.content.onDestination[document] as number
    this.destination.server.put(document, present > 0 && random.chance(0.4) ? 0 : foreignVersion)
  }

  #failed(process: Process, what: string): void {
    const kind = what.split(':')[0] as string
    this.failures.set(kind, (this.failures.get(kind) ?? 0) + 1)
    if (kind === 'InternalError') this.invariants.violation ??= `${process.id} failed: ${what}`
    // When two processes have the same id, the operator ends the one that lost the lease.
    if (kind !== 'another process has its lease') return
    this.end(process)
    if (this.processesOf(process.id).length === 0) this.instances.find(({ id }) => id === process.id)?.start(2_000)
  }
}

const documentsPerRange = 10

/** Returns an int32 as a typed value, like the bounds of a range. */
function typedInt32(value: number): Buffer {
  const typed = Buffer.alloc(5, bsonType.int32)
  typed.writeInt32LE(value, 1)
  return typed
}

/** A version that the source never has. */
const foreignVersion = 1_000_000_000

function entryOf(at: number, copies: boolean): CatalogEntry {
  return {
    uuid: collectionUuid('source', at),
    database,
    name: collectionName(at),
    sourceName: collectionName(at),
    destinationUUID: collectionUuid('destination', at),
    state: copies ? 'copying' : 'copied',
    wanted: { options: [], indexes: [] },
    refusedIndexes: [],
    awaitsIndexes: false,
    shardKey: null,
    estimatedBytes: 0,
    estimatedDocuments: 0,
    copiedBytes: 0,
    totalCopied: copies ? null : 0,
    endedPartitions: new Set(),
    planned: !copies,
    hasTombstones: false,
    converging: false,
    convergedFrom: null,
  }
}
