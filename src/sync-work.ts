import { createActor, fromCallback, fromPromise, waitFor } from 'xstate'
import { electionMachine } from '../machines/election.ts'
import type { EventApplication } from './apply/event-application.ts'
import { admitWrites, finishIndexes, holdBackAgain, prepareToWrite } from './commit/finish-commit.ts'
import { applyLateDeletes } from './commit/late-changes.ts'
import { setWriteBlocking } from './commit/write-blocking.ts'
import { type ClusterTime, laterOf } from './domain/cluster-time.ts'
import { FatalError, StoppedError } from './domain/errors.ts'
import type { Cluster } from './mongo/cluster.ts'
import { Heartbeat } from './mongo/heartbeat.ts'
import { Lease, type LeaseOwner } from './mongo/lease.ts'
import { appendNote } from './mongo/listing.ts'
import type { Metadata, SyncRecord } from './mongo/metadata.ts'
import { type RetryContext, retry } from './mongo/retry.ts'
import { blocksDestination, type LoadLevel, Replication } from './replication.ts'
import { Verification } from './verification.ts'

export interface SyncWorkParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  owner: LeaseOwner
  context: RetryContext
  loadLevel: LoadLevel
  atStep: (step: string) => void
  dropEventsOf: string | null
  onLeaseLost: () => void
}

/** One sync's work in this process: what the instance machine's actors do, and the figures progress shows. */
export class SyncWork {
  readonly lease: Lease
  /** The embedded verifier, also where it is switched off: then it has nothing to say. */
  readonly verification: Verification
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
  #events: EventApplication | null = null
  #appliedBefore = 0
  #appliedTime: ClusterTime = 0n
  /** The source is known to have done nothing between the commit point and this time but let documents expire. */
  #quietUntil: ClusterTime = 0n

  constructor(parts: SyncWorkParts) {
    this.#parts = parts
    this.#heartbeat = new Heartbeat(parts.source)
    const lease = new Lease(parts.destination, 'coordinator', parts.owner, parts.context)
    this.lease = lease
    parts.destination.fence = () => lease.fence()
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
    this.verification = new Verification({
      source: parts.source,
      destination: parts.destination,
      metadata: parts.metadata,
      context: parts.context,
      atStep: parts.atStep,
      epoch: () => lease.epoch,
      catalogue: () => this.#finishing.catalogue,
      appliedTime: () => this.appliedTime,
    })
  }

  /** Resolves when this process leads and may write. */
  async lead(): Promise<void> {
    this.#election.send({ type: 'lease.campaign' })
    const { value, context } = await waitFor(
      this.#election,
      (snapshot) => snapshot.matches('leading') || snapshot.context.failure !== null,
      { timeout: Number.POSITIVE_INFINITY },
    )
    if (value !== 'leading') throw context.failure
  }

  /** The sync is over: nobody writes any more. */
  async resign(): Promise<void> {
    await this.verification.stop()
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

  /**
   * The replication both workers share; built when the first of them asks.
   * @param commitBegun a commit was begun and not finished: what it restored is held back again
   */
  replication(commitBegun: boolean): Promise<Replication> {
    this.#replication ??= this.#open(commitBegun)
    return this.#replication
  }

  async #open(commitBegun: boolean): Promise<Replication> {
    await this.#ended
    this.#abort = new AbortController()
    await this.lead()
    const replication = await this.#load()
    if (commitBegun) await holdBackAgain(replication.commit)
    await replication.prepare()
    this.#events = replication.events
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
    this.#replication = null
    this.#appliedBefore += this.#events?.totalEventsApplied ?? 0
    this.#appliedTime = this.appliedTime
    this.#events = null
    this.#abort.abort()
    this.#heartbeat.stop()
    this.#ended = Promise.all(this.#running)
    this.#running = []
  }

  /** Blocks the source if asked for and fixes the time up to which events are applied. */
  async commitPoint(): Promise<string> {
    const { source, context } = this.#parts
    if (this.#configuration.enableUserWriteBlocking === 'sourceAndDestination') {
      this.#parts.atStep('blockSource')
      await retry('blocking writes on the source', context, () => setWriteBlocking(source, true))
    }
    this.#parts.atStep('commitPoint')
    await retry('taking the commit point', context, () => appendNote(source, 'commit'))
    const point = source.latest.toString()
    // Events are applied until the stream has passed the point; on a quiet source this is what it passes it by.
    await retry('taking the commit point', context, () => appendNote(source, 'after commit'))
    return point
  }

  prepareToWrite(left: AbortSignal): Promise<void> {
    return this.#finish(left, async () => {
      await this.lead()
      this.#abort = new AbortController()
      const replication = await this.#load()
      await this.verification.checkDefinitions(this.#configuration, 'heldBack')
      await prepareToWrite(replication.commit)
    })
  }

  /** Both clusters hold the same, and the source is quiet. Throws FatalError VerificationFailed or SourceWritten. */
  verdict(commitPoint: ClusterTime, left: AbortSignal): Promise<void> {
    return this.#finish(left, () => this.#speak(commitPoint))
  }

  async #speak(commitPoint: ClusterTime): Promise<void> {
    this.#parts.atStep('verify')
    // Before the verifier's last look: what changes on the destination after it belongs to the way back.
    this.#parts.atStep('reversePosition')
    await this.#finishing.commit.keepReversePosition()
    const applyLate = async (since: ClusterTime): Promise<number> => {
      const { until, expired } = await applyLateDeletes(this.#finishing.commit, since)
      this.#quietUntil = until
      return expired
    }
    await applyLate(commitPoint)
    await this.verification.settle(this.#configuration, () => applyLate(this.#quietUntil))
  }

  /** A last look at the source, then writes are allowed on the destination. */
  admit(commitPoint: ClusterTime, left: AbortSignal): Promise<void> {
    return this.#finish(left, async () => {
      const since = laterOf(commitPoint, this.#quietUntil)
      await applyLateDeletes(this.#finishing.commit, since)
      // From here on users write on the destination, and that is no difference any more.
      await this.verification.end()
      if (left.aborted) throw new StoppedError()
      await admitWrites(this.#finishing.commit, blocksDestination(this.#configuration))
    })
  }

  /**
   * A step of a commit, after everything before it has ended. When the machine leaves it (the verifier may fail beside it)
   * it is told to stop, and awaited before anything new begins.
   */
  #finish(left: AbortSignal, step: () => Promise<void>): Promise<void> {
    let over = false
    const run = this.#ended.then(step).finally(() => {
      over = true
    })
    // A step that has ended is left as well; what comes next must not be stopped for that.
    const leave = (): void => {
      if (!over) this.#abort.abort()
    }
    left.addEventListener('abort', leave, { once: true })
    this.#ended = run.catch(() => {})
    return run
  }

  /** Makes what the last verdict named equal again, from the source. Returns how many documents were looked at. */
  async repair(): Promise<number> {
    await this.#ended
    await this.lead()
    this.#abort = new AbortController()
    const replication = await this.#load()
    await holdBackAgain(replication.commit)
    return await replication.repair(this.verification.store)
  }

  async finishIndexes(): Promise<void> {
    await this.lead()
    const replication = await this.#load()
    await finishIndexes(replication.commit)
  }

  /** The reversal's second half: from here on this direction's lease is what allows writes on either cluster. */
  async adapt(): Promise<void> {
    await this.lead()
    this.#parts.source.fence = () => this.lease.fence()
    const replication = await this.#load()
    await replication.adapt()
  }

  /** Loads what is stored, for the figures of an instance that is not running. */
  async look(): Promise<void> {
    await this.#load(false)
    this.#appliedTime = (await this.#parts.metadata.loadPosition(0))?.time ?? 0n
    await this.verification.look()
  }

  get totalEventsApplied(): number {
    return this.#appliedBefore + (this.#events?.totalEventsApplied ?? 0)
  }

  get appliedTime(): ClusterTime {
    if (this.#events) return this.#events.appliedTime
    return laterOf(this.#appliedTime, this.#record?.startTime ?? 0n)
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
    await this.verification.stop()
    this.#election.stop()
    await this.#ended
    await this.lease.release()
  }

  /** What a commit works on: loaded when it began to finish. */
  get #finishing(): Replication {
    if (!this.#latest) throw new FatalError('InternalError', 'a commit that finishes before it began')
    return this.#latest
  }

  get #configuration(): SyncRecord['configuration'] {
    if (!this.#record) throw new FatalError('InternalError', 'a sync without configuration')
    return this.#record.configuration
  }

  async #load(current = true): Promise<Replication> {
    if (!this.#record) throw new FatalError('InternalError', 'a sync without configuration')
    if (this.#parts.context.signal.aborted) throw new StoppedError()
    const { source, destination, metadata, context, loadLevel, atStep, dropEventsOf } = this.#parts
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
      dropEventsOf,
    })
    const loaded = await replication.load()
    if (current) this.#latest = loaded
    else this.#latest ??= loaded
    return replication
  }
}
