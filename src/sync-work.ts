import { createActor, fromCallback, fromPromise, waitFor } from 'xstate'
import { electionMachine } from '../machines/election.ts'
import { finishIndexes, prepareToWrite } from './commit/finish-commit.ts'
import { setWriteBlocking } from './commit/write-blocking.ts'
import type { ClusterTime } from './domain/cluster-time.ts'
import { FatalError, StoppedError } from './domain/errors.ts'
import type { Cluster } from './mongo/cluster.ts'
import { Heartbeat } from './mongo/heartbeat.ts'
import { Lease, type LeaseOwner } from './mongo/lease.ts'
import { appendNote } from './mongo/listing.ts'
import type { Metadata, SyncRecord } from './mongo/metadata.ts'
import { type RetryContext, retry } from './mongo/retry.ts'
import { blocksDestination, type LoadLevel, Replication } from './replication.ts'

export interface SyncWorkParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  owner: LeaseOwner
  context: RetryContext
  loadLevel: LoadLevel
  atStep: (step: string) => void
  onLeaseLost: () => void
}

/** One sync's work in this process: what the instance machine's actors do, and the figures progress shows. */
export class SyncWork {
  readonly lease: Lease
  readonly #parts: SyncWorkParts
  readonly #heartbeat: Heartbeat
  readonly #election
  #record: SyncRecord | null = null
  #replication: Promise<Replication> | null = null
  #abort = new AbortController()
  /** Runs of the last replication: a new one begins only when they have ended. */
  #running: Promise<unknown>[] = []
  #ended: Promise<unknown> = Promise.resolve()
  #latest: Replication | null = null
  #appliedBefore = 0

  constructor(parts: SyncWorkParts) {
    this.#parts = parts
    this.#heartbeat = new Heartbeat(parts.source)
    const lease = new Lease(parts.destination, 'coordinator', parts.owner, parts.context)
    this.lease = lease
    this.#election = createActor(
      electionMachine.provide({
        actors: {
          campaign: fromPromise(() => lease.acquire()),
          tenure: fromCallback(({ sendBack }) => {
            lease.onLost = () => {
              sendBack({ type: 'lease.lost', holder: null })
              parts.onLeaseLost()
            }
          }),
        },
      }),
    )
    this.#election.start()
  }

  /** Resolves when this process leads and may write. */
  async lead(): Promise<void> {
    this.#election.send({ type: 'lease.campaign' })
    await waitFor(this.#election, (snapshot) => snapshot.matches('leading'), { timeout: Number.POSITIVE_INFINITY })
    this.#parts.destination.fence = () => this.lease.fence()
  }

  /** The sync is over: nobody writes any more. */
  async resign(): Promise<void> {
    this.#election.send({ type: 'lease.resign' })
    await this.lease.release()
  }

  bind(record: SyncRecord): void {
    this.#record = record
  }

  get record(): SyncRecord | null {
    return this.#record
  }

  async initialise(): Promise<void> {
    await this.lead()
    const replication = await this.#load()
    await replication.initialise()
  }

  /** The replication both workers share; built when the first of them asks. */
  replication(): Promise<Replication> {
    this.#replication ??= this.#open()
    return this.#replication
  }

  async #open(): Promise<Replication> {
    await this.#ended
    this.#abort = new AbortController()
    await this.lead()
    const replication = await this.#load()
    await replication.prepare()
    this.#heartbeat.start()
    return replication
  }

  /** A worker's run belongs to the present replication until it leaves. */
  joined(run: Promise<unknown>): void {
    this.#running.push(run.catch(() => {}))
  }

  /** The machine has left the state that replicates: whatever still runs is stopped, and awaited before anything new. */
  left(): void {
    if (!this.#replication) return
    this.#appliedBefore += this.#latest?.events?.totalEventsApplied ?? 0
    this.#replication = null
    this.#abort.abort()
    this.#heartbeat.stop()
    this.#ended = Promise.all(this.#running)
    this.#running = []
  }

  /** Blocks the source if asked for and fixes the time up to which events are applied. */
  async commitPoint(known: string | null): Promise<string> {
    const { source, context } = this.#parts
    if (this.#configuration.enableUserWriteBlocking === 'sourceAndDestination') {
      this.#parts.atStep('blockSource')
      await retry('blocking writes on the source', context, () => setWriteBlocking(source, true))
    }
    this.#parts.atStep('commitPoint')
    if (known) return known
    await retry('taking the commit point', context, () => appendNote(source, 'commit'))
    return source.latest.toString()
  }

  async prepareToWrite(): Promise<void> {
    await this.#ended
    await this.lead()
    this.#abort = new AbortController()
    const replication = await this.#load()
    await prepareToWrite(replication.commit, blocksDestination(this.#configuration))
  }

  async finishIndexes(): Promise<void> {
    await this.lead()
    const replication = await this.#load()
    await finishIndexes(replication.commit)
  }

  /** Loads what is stored, for the figures of an instance that is not running. */
  async look(): Promise<void> {
    await this.#load()
  }

  get totalEventsApplied(): number {
    const running = this.#replication ? (this.#latest?.events?.totalEventsApplied ?? 0) : 0
    return this.#appliedBefore + running
  }

  get appliedTime(): ClusterTime {
    return this.#latest?.events?.appliedTime ?? this.#record?.startTime ?? 0n
  }

  /** Bytes of documents, over the collections known now. */
  get copyBytes(): { total: number; copied: number; begun: boolean } {
    let total = 0
    let copied = 0
    let begun = false
    for (const entry of this.#latest?.catalogue.entries() ?? []) {
      copied += entry.copiedBytes
      total += entry.state === 'copied' ? entry.copiedBytes : Math.max(entry.estimatedBytes, entry.copiedBytes)
      begun ||= entry.planned
    }
    return { total, copied, begun }
  }

  async close(): Promise<void> {
    this.left()
    await this.#ended
    this.#election.stop()
    await this.lease.release()
  }

  get #configuration(): SyncRecord['configuration'] {
    if (!this.#record) throw new FatalError('InternalError', 'a sync without configuration')
    return this.#record.configuration
  }

  async #load(): Promise<Replication> {
    if (!this.#record) throw new FatalError('InternalError', 'a sync without configuration')
    if (this.#parts.context.signal.aborted) throw new StoppedError()
    const { source, destination, metadata, context, loadLevel, atStep } = this.#parts
    const signal = AbortSignal.any([context.signal, this.#abort.signal])
    const replication = new Replication({
      source,
      destination,
      metadata,
      record: this.#record,
      context: { ...context, signal },
      epoch: this.lease.epoch,
      loadLevel,
      atStep,
    })
    this.#latest = await replication.load()
    return replication
  }
}
