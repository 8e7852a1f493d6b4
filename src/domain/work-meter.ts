import { Durations } from './durations.ts'

/** The operations on the clusters whose durations are measured. */
export const operations = ['copyRead', 'copyWrite', 'applyRead', 'applyWrite', 'sourcePing', 'destinationPing'] as const
export type Operation = (typeof operations)[number]

export interface LaneDepths {
  /** For each lane (src/apply/lanes.ts), the number of changed documents that wait in it or are being written. */
  readonly depths: readonly number[]
}

/**
 * Counts what this process has done since it was started, for the metrics and the log. The counters never become
 * smaller. The figures of `progress` may, and they also contain the stored work of earlier processes and of lost
 * instances.
 */
export class WorkMeter {
  readonly durations: Readonly<Record<Operation, Durations>> = {
    copyRead: new Durations(),
    copyWrite: new Durations(),
    applyRead: new Durations(),
    applyWrite: new Durations(),
    sourcePing: new Durations(),
    destinationPing: new Durations(),
  }
  copiedDocuments = 0
  copiedBytes = 0
  copiedSegments = 0
  streamEvents = 0
  streamBytes = 0
  definitionEvents = 0
  retries = 0
  /** When the work last made progress, in ms since 1970; null if it has made none. */
  progressedAt: number | null = null
  readonly #flushes: Durations[] = []
  #lanes: LaneDepths | null = null

  /** A batch of documents was copied or, in a convergence, compared. */
  copied(documents: number, bytes: number): void {
    this.copiedDocuments += documents
    this.copiedBytes += bytes
    this.progressed()
  }

  /** A batch of the change stream was read. */
  read(events: readonly Uint8Array[]): void {
    this.streamEvents += events.length
    for (const { length } of events) this.streamBytes += length
  }

  /** Documents were copied, or all changes of a batch of the change stream are applied. The batch may be empty. */
  progressed(): void {
    this.progressedAt = Date.now()
  }

  /** A lane has written a batch. */
  flushed(lane: number, ms: number): void {
    let durations = this.#flushes[lane]
    if (!durations) {
      durations = new Durations()
      this.#flushes[lane] = durations
    }
    durations.add(ms)
  }

  /** The durations of the batches that each lane has written. */
  get flushes(): readonly Durations[] {
    return this.#flushes
  }

  /** Reports the depths of these lanes from now on. Called when event application begins. */
  watch(lanes: LaneDepths): void {
    this.#lanes = lanes
  }

  get laneDepths(): readonly number[] {
    return this.#lanes?.depths ?? []
  }

  /** Runs and measures one operation. A failed operation is not counted, because it says nothing about the speed. */
  async time<T>(operation: Operation, work: () => Promise<T>): Promise<T> {
    const began = performance.now()
    const result = await work()
    this.durations[operation].add(performance.now() - began)
    return result
  }

  /** Yields the batches of a read, and measures how long the cluster takes to return each. */
  async *timeEach<T>(operation: Operation, batches: AsyncIterable<T>): AsyncGenerator<T> {
    let began = performance.now()
    for await (const batch of batches) {
      this.durations[operation].add(performance.now() - began)
      yield batch
      began = performance.now()
    }
  }
}
