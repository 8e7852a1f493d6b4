import { type Actor, createActor, fromCallback, fromPromise, waitFor } from 'xstate'
import { instanceMachine } from '../machines/instance.ts'
import type { InstanceContext } from '../machines/instance-context.ts'
import type { Instance } from './api/instance.ts'
import { FatalError, RefusedError, StoppedError, toFailure } from './domain/errors.ts'
import type { Progress } from './domain/progress.ts'
import type { StartConfiguration } from './domain/start-request.ts'
import type { Cluster, ClusterName } from './mongo/cluster.ts'
import { appendNote } from './mongo/listing.ts'
import { Metadata, type SyncRecord } from './mongo/metadata.ts'
import type { RetryContext } from './mongo/retry.ts'
import type { LoadLevel } from './replication.ts'
import { type InstanceSnapshot, idleProgress, publicState, reportProgress } from './report-progress.ts'
import { checkReverse } from './reverse/check-reverse.ts'
import { moveMetadata, turnRecord } from './reverse/move-metadata.ts'
import { asRefusal, checkStart } from './start-checks.ts'
import { superviseCopy, superviseEvents, superviseVerification } from './supervise-work.ts'
import { SyncWork } from './sync-work.ts'
import type { Mismatch } from './verify/difference.ts'

export interface SyncInstanceParts {
  clusters: Record<ClusterName, Cluster>
  addresses: Record<ClusterName, string>
  mongosyncID: string
  incarnation: string
  context: RetryContext
  loadLevel: LoadLevel
  atStep: (step: string) => void
  dropEventsOf: string | null
  onTransition: (snapshot: InstanceSnapshot) => void
}

/** The instance behind the API: the machine says when, SyncWork does the work, this stores what must survive. */
export class SyncInstance implements Instance {
  readonly #parts: SyncInstanceParts
  #actor: Actor<typeof instanceMachine>
  #work: SyncWork | null = null
  #metadata: Metadata | null = null
  #stored: InstanceContext | null = null
  #storing: Promise<void> = Promise.resolve()
  #starting = false
  #reversing = false
  /** The lease given back at COMMITTED, once. */
  #resigning: Promise<void> | null = null
  #repairing = false
  /** The configuration of a sync that a predecessor began: an identical start is answered success. */
  #inherited: StartConfiguration | null = null

  constructor(parts: SyncInstanceParts) {
    this.#parts = parts
    this.#actor = this.#createActor(null)
    this.#actor.start()
  }

  /**
   * Goes on with the sync that a predecessor began. What it stored counts only once this process holds the lease: until
   * then the predecessor may still be at work and store more.
   */
  async restore(record: SyncRecord): Promise<void> {
    this.#inherited = record.configuration
    const work = this.#begin(record)
    let context = await this.#loadContext()
    if (!context?.canWrite || context.commitRequested || context.reversing) {
      await work.lead()
      context = await this.#loadContext()
    }
    await work.look()
    this.#stored = context
    this.#actor.stop()
    this.#actor = this.#createActor(context ?? startedContext(record.configuration))
    this.#actor.start()
  }

  async #loadContext(): Promise<InstanceContext | null> {
    const stored = await this.#metadata?.loadInstances()
    const own = stored?.get(this.#parts.mongosyncID) ?? null
    const [other] = stored?.keys() ?? []
    if (!own && other !== undefined) {
      throw new FatalError(
        'InstanceMismatch',
        `this sync is run by the instance with id ${other}; start with --id ${other}. Several instances for one sync are not supported by this version of tandem.`,
      )
    }
    return own as InstanceContext | null
  }

  progress(): Progress {
    const snapshot = this.#actor.getSnapshot()
    const record = this.#work?.record
    if (!this.#work || !record || publicState(snapshot) === 'IDLE') return idleProgress
    return reportProgress({
      snapshot,
      stored: this.#stored,
      work: this.#work,
      record,
      sourceLatest: this.#parts.clusters[record.configuration.source].latest,
      addresses: this.#parts.addresses,
      mongosyncID: this.#parts.mongosyncID,
      retrying: this.#parts.context.monitor.current,
      warnings: warningsOf(record.configuration),
    })
  }

  async start(configuration: StartConfiguration): Promise<void> {
    if (this.#inherited && sameConfiguration(this.#inherited, configuration)) return
    if (this.#state !== 'IDLE' || this.#starting) throw this.#wrongState('start', 'IDLE')
    this.#starting = true
    try {
      await this.#start(configuration)
    } finally {
      this.#starting = false
    }
  }

  async pause(): Promise<void> {
    const snapshot = this.#actor.getSnapshot()
    if (this.#state !== 'RUNNING' || snapshot.context.pauseRequested) throw this.#wrongState('pause', 'RUNNING')
    this.#actor.send({ type: 'sync.pause' })
    await waitFor(this.#actor, (now) => publicState(now) !== 'RUNNING', { timeout: Number.POSITIVE_INFINITY })
    await this.#storing
    if (publicState(this.#actor.getSnapshot()) !== 'PAUSED') throw this.#wrongState('pause', 'RUNNING')
  }

  async resume(): Promise<void> {
    if (this.#state !== 'PAUSED' && this.#state !== 'FAILED') throw this.#wrongState('resume', 'PAUSED or FAILED')
    if (this.#actor.getSnapshot().context.failure?.error === 'LeaseLost') {
      throw new RefusedError('WrongState', 'another instance has taken over; stop it and restart this one')
    }
    if (this.#repairing) throw new RefusedError('WrongState', 'a repair is under way; send resume when it has ended')
    this.#actor.send({ type: 'sync.resume' })
    await this.#storing
  }

  async commit(): Promise<void> {
    if (this.#state !== 'RUNNING') throw this.#wrongState('commit', 'RUNNING')
    if (!this.#actor.getSnapshot().hasTag('canCommit')) {
      throw new RefusedError(
        'CannotCommit',
        'the initial copy and its first verification have not ended; wait until progress shows canCommit true',
      )
    }
    this.#actor.send({ type: 'sync.commit' })
    await this.#storing
  }

  async reverse(): Promise<void> {
    const work = this.#work
    if (this.#state !== 'COMMITTED' || !work?.record || this.#reversing) throw this.#wrongState('reverse', 'COMMITTED')
    this.#reversing = true
    try {
      const { source, destination } = work.record.configuration
      const { clusters, context } = this.#parts
      await checkReverse({
        record: work.record,
        source: clusters[source],
        destination: clusters[destination],
        context,
      })
      await this.#resigning
      await work.lead()
      const standing = await this.#metadata?.loadSync()
      if (standing?.generation !== work.record.generation) {
        await work.resign()
        throw new RefusedError('WrongState', 'another instance has reversed this sync; restart this one')
      }
      this.#actor.send({ type: 'sync.reverse' })
    } catch (error) {
      throw asRefusal(error)
    } finally {
      this.#reversing = false
    }
    await this.#storing
  }

  /** What the last verdict found different; empty before the first and after one without differences. */
  async mismatches(): Promise<{ mismatches: Mismatch[]; total: number }> {
    if (!this.#work) return { mismatches: [], total: 0 }
    const { mismatches, total } = await this.#work.verification.store.loadVerdict()
    return { mismatches: mismatches as Mismatch[], total }
  }

  /** Reconciles what the last verdict named from the source; `resume` then commits anew. */
  async repair(): Promise<number> {
    const failure = this.#actor.getSnapshot().context.failure
    if (this.#state !== 'FAILED' || failure?.error !== 'VerificationFailed' || this.#repairing) {
      throw new RefusedError(
        'WrongState',
        `repair is accepted in FAILED after VerificationFailed; the state is ${this.#state}${failure ? ` (${failure.error})` : ''}`,
      )
    }
    this.#repairing = true
    try {
      return await (this.#work as SyncWork).repair()
    } catch (error) {
      throw asRefusal(error)
    } finally {
      this.#repairing = false
    }
  }

  async close(): Promise<void> {
    await this.#storing
    this.#actor.stop()
    await this.#work?.close()
  }

  get #state(): Progress['state'] {
    return publicState(this.#actor.getSnapshot())
  }

  async #start(configuration: StartConfiguration): Promise<void> {
    const source = this.#parts.clusters[configuration.source]
    const destination = this.#parts.clusters[configuration.destination]
    const facts = await checkStart(configuration, source, destination)
    try {
      await appendNote(source, 'start')
      const record: SyncRecord = {
        configuration,
        sourceIdentity: facts.source.identity,
        destinationIdentity: facts.destination.identity,
        startTime: source.latest,
        generation: 0,
      }
      const work = this.#begin(record)
      await work.lead()
      await (this.#metadata as Metadata).saveSync(record)
    } catch (error) {
      await this.#work?.close()
      this.#work = null
      throw asRefusal(error)
    }
    this.#actor.send({ type: 'sync.start', configuration })
    await this.#storing
  }

  #begin(record: SyncRecord): SyncWork {
    const { work, metadata } = this.#prepare(record)
    this.#metadata = metadata
    this.#work = work
    return work
  }

  #prepare(record: SyncRecord): { work: SyncWork; metadata: Metadata } {
    const { clusters, context, loadLevel, mongosyncID, incarnation, atStep, dropEventsOf } = this.#parts
    const destination = clusters[record.configuration.destination]
    const metadata = new Metadata(destination, context)
    const work = new SyncWork({
      source: clusters[record.configuration.source],
      destination,
      metadata,
      owner: { id: mongosyncID, incarnation },
      context,
      loadLevel,
      atStep,
      dropEventsOf,
      onLeaseLost: () => {
        const errorDescription = 'another instance took the lease on the destination over; this one has stopped'
        this.#actor.send({ type: 'worker.failed', failure: { error: 'LeaseLost', errorDescription } })
      },
    })
    work.bind(record)
    return { work, metadata }
  }

  /** Both leases are held while what is stored moves; from then on the new direction's work is this instance's. */
  async #turnAround(context: InstanceContext): Promise<void> {
    const [former, from] = [this.#work, this.#metadata]
    if (!former?.record || !from) throw new FatalError('InternalError', 'a reversal without a sync')
    const turned = turnRecord(former.record, await from.loadPosition('reverse'))
    const { work, metadata } = this.#prepare(turned)
    try {
      await former.lead()
      await work.lead()
      const { mongosyncID: id, atStep } = this.#parts
      const verified = work.verification.store
      await moveMetadata({ from, to: metadata, verified, turned, id, context, epoch: work.lease.epoch, atStep })
      await work.look()
    } catch (error) {
      await work.close()
      throw error
    }
    await former.close()
    this.#metadata = metadata
    this.#work = work
    this.#resigning = null
    if (this.#inherited) this.#inherited = turned.configuration
  }

  #createActor(context: InstanceContext | null): Actor<typeof instanceMachine> {
    const work = (): SyncWork => this.#work as SyncWork
    const machine = instanceMachine.provide({
      actors: {
        initialisation: fromPromise(() => work().initialise()),
        collectionCopy: fromCallback(({ input, sendBack, receive }) =>
          superviseCopy(work(), input.commitBegun, sendBack, receive),
        ),
        eventApplication: fromCallback(({ input, sendBack, receive }) =>
          superviseEvents(work(), input.commitBegun, sendBack, receive),
        ),
        verification: fromCallback(({ input, sendBack }) =>
          superviseVerification(work(), input.configuration, sendBack),
        ),
        commitPoint: fromPromise(() => this.#onceStored(() => work().commitPoint())),
        preparation: fromPromise(({ signal }) => this.#onceStored(() => work().prepareToWrite(signal))),
        verdict: fromPromise(({ input, signal }) =>
          this.#onceStored(() => work().verdict(BigInt(input.commitPoint), signal)),
        ),
        admission: fromPromise(({ input, signal }) => work().admit(BigInt(input.commitPoint), signal)),
        indexConversion: fromPromise(() => this.#onceStored(() => work().finishIndexes())),
        metadataMove: fromPromise(() => this.#onceStored(() => this.#turnAround(this.#actor.getSnapshot().context))),
        adaptation: fromPromise(() => this.#onceStored(() => work().adapt())),
      },
    })
    const actor = createActor(machine, { input: context })
    actor.subscribe((snapshot) => {
      this.#parts.onTransition(snapshot)
      if (snapshot.context.configuration) this.#store(snapshot.context)
      if (publicState(snapshot) === 'COMMITTED') {
        this.#resigning ??= this.#storing.then(() => this.#work?.resign()).catch(() => {})
      }
    })
    return actor
  }

  /** Steps of a commit begin when the state that announces them is stored: a restart must know what it may find done. */
  async #onceStored<T>(step: () => Promise<T>): Promise<T> {
    await new Promise((resolve) => setImmediate(resolve))
    await this.#storing
    return await step()
  }

  /** Stores the newest context, in order. What is stored is what a restart goes on from. */
  #store(context: InstanceContext): void {
    this.#storing = this.#storing.then(async () => {
      // By value: the machine copies the context it is given, and a committed instance holds no lease to write by.
      if (JSON.stringify(context) === JSON.stringify(this.#stored)) return
      try {
        await this.#metadata?.saveInstance(this.#parts.mongosyncID, context)
        this.#stored = context
      } catch (error) {
        if (error instanceof StoppedError) return
        this.#actor.send({ type: 'worker.failed', failure: toFailure(error) })
      }
    })
  }

  #wrongState(command: string, expected: string): RefusedError {
    return new RefusedError('WrongState', `${command} is accepted in ${expected}; the state is ${this.#state}`)
  }
}

function startedContext(configuration: StartConfiguration): InstanceContext {
  const fresh = createActor(instanceMachine, { input: null }).getSnapshot().context
  return { ...fresh, configuration }
}

function warningsOf({ reversible, enableUserWriteBlocking }: StartConfiguration): string[] {
  if (!reversible || enableUserWriteBlocking === 'sourceAndDestination') return []
  return [
    `this sync is reversible, but reverse will be refused: enableUserWriteBlocking is ${enableUserWriteBlocking}, not sourceAndDestination`,
  ]
}

/** Whether a default was spelled out makes no difference. */
function sameConfiguration(one: StartConfiguration, other: StartConfiguration): boolean {
  return JSON.stringify({ ...one, writeBlockingGiven: true }) === JSON.stringify({ ...other, writeBlockingGiven: true })
}
