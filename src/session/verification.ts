import type { Coordination } from '../coordination/coordination.ts'
import type { Peers } from '../coordination/peers.ts'
import type { BothCatalogs } from '../definitions/both-catalogs.ts'
import type { DefinitionStage } from '../definitions/compare-definitions.ts'
import { findDefinitionMismatches } from '../definitions/read-definitions.ts'
import type { InitialCompareMethod } from '../domain/compare-method.ts'
import { aborted, deferred } from '../domain/deferred.ts'
import { errorText } from '../domain/error-text.ts'
import { assert, FatalError, StoppedError } from '../domain/errors.ts'
import { both } from '../domain/in-parallel.ts'
import { listedMax, type Mismatch, type RecheckResult, type Verdict } from '../domain/mismatch.ts'
import type { Progress } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import { RangeClaims } from '../mongo/range-claims.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import type { SharedStream } from '../mongo/shared-stream.ts'
import { StoredDocuments } from '../mongo/stored-documents.ts'
import { VerificationStore } from '../mongo/verification-store.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { streamPartition } from '../verify/checkpoint.ts'
import type { Helpers } from '../verify/offered-ranges.ts'
import { Verifier } from '../verify/verifier.ts'
import { OfferedWork } from './offered-work.ts'
import { type RunObserver, VerificationRun } from './verification-run.ts'
import type { WorkFigures } from './work-figures.ts'
import type { WorkRuns } from './work-runs.ts'

export interface VerificationParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  context: RetryContext
  /** The namespaces that are synced now. They change only while no verifier runs. */
  selection: () => Selection
  sharedStream: SharedStream
  throttle: Throttle
  /** How the first pass compares documents. */
  compareMethod: InitialCompareMethod
  atStep: (step: string) => void
  coordination: Coordination
  peers: Pick<Peers, 'sync'>
  runs: WorkRuns
  figures: WorkFigures
}

type Report = NonNullable<Progress['verification']>

const side = {
  estimatedDocumentCount: 0,
  hashedDocumentCount: 0,
  lagTimeSeconds: 0,
  phase: 'not started',
  scannedCollectionCount: 0,
  totalCollectionCount: 0,
}
const notStarted: Report = { source: side, destination: side }

/** The embedded verification of one sync: the work of machines/verification.ts, and the verdict for a commit. */
export class Verification {
  readonly store: VerificationStore
  /** What this instance compares for the verifier of another one. */
  readonly offered: OfferedWork
  /** Documents of the source that this process has compared in first passes. */
  comparedDocuments = 0
  readonly #parts: VerificationParts
  #verifier: Verifier | null = null
  /** Verifiers whose position an oplog no longer holds. Each was replaced by another verifier. */
  readonly #replaced = new WeakSet<Verifier>()
  #copied = deferred<void>()
  #isCopied = false
  /** The last convergence that this instance has observed; null before the first read of the sync's state. */
  #convergences: number | null = null
  #latest: VerificationRun | null = null
  #runs = 0
  #report: Report = notStarted

  constructor(parts: VerificationParts) {
    this.#parts = parts
    this.store = new VerificationStore(parts.destination, parts.context)
    this.offered = new OfferedWork({
      ...parts,
      isCopied: () => this.#isCopied,
      compared: (documents) => this.#countCompared(documents),
    })
  }

  /** Returns null when verification is switched off. */
  report(configuration: StartConfiguration): Progress['verification'] {
    if (!configuration.verification.enabled) return null
    return this.#verifier?.report ?? this.#report
  }

  /** Null while this instance verifies nothing. */
  get backlog(): { open: number; perSecond: number } | null {
    return this.#verifier?.backlog ?? null
  }

  /**
   * True when both clusters have opened the change streams of the current run at the positions at which an earlier run
   * stopped.
   */
  get continues(): boolean {
    const isPresent = this.#runs === 1 && !this.#latest?.stopped.aborted
    return isPresent && (this.#verifier?.continues ?? false)
  }

  /** True when a verifier runs or is about to. */
  get running(): boolean {
    return this.#runs > 0
  }

  /** Resolves when no run and no comparison is under way any more, whether it succeeded, failed or was stopped. */
  get ended(): Promise<void> {
    return Promise.all([this.#latest?.ended, this.offered.ended()]).then(() => {})
  }

  /** Called with the number of convergences: when it has increased, documents have to be copied again. */
  observed(convergences: number): void {
    if (this.#convergences !== null && convergences > this.#convergences) {
      this.#copied = deferred()
      this.#isCopied = false
    }
    this.#convergences = convergences
  }

  /** Called when every document has been copied once. */
  copied(): void {
    this.#isCopied = true
    this.#copied.resolve()
  }

  /** Begins a run. Its work must wait for `awaitEarlierRun` and `awaitCopy`. */
  begin(observer: RunObserver): VerificationRun {
    const run = new VerificationRun(this.ended, observer)
    this.#latest = run
    this.#runs += 1
    void run.ended.then(() => {
      this.#runs -= 1
    })
    return run
  }

  /** The run that was begun last. */
  get latest(): VerificationRun {
    assert(this.#latest, 'verification is under way without a run')
    return this.#latest
  }

  /** Waits until the earlier run of this process has ended. */
  awaitEarlierRun(run: VerificationRun): Promise<void> {
    return run.work.run(() => run.earlier)
  }

  /** Waits until every document has been copied once. */
  awaitCopy(run: VerificationRun): Promise<void> {
    return run.work.run(() => Promise.race([this.#copied.promise, aborted(run.stopped)]))
  }

  /** Verifies until the run is stopped; rejects on a failure. */
  verify(run: VerificationRun): Promise<void> {
    return run.work.run(async () => {
      const began = performance.now()
      this.#parts.context.journal?.('verification began', {})
      const verifier = this.#create(() => {
        this.#logPass(verifier, began)
        run.observer.scanned()
      })
      const stop = (): void => verifier.stop()
      run.stopped.addEventListener('abort', stop, { once: true })
      this.#verifier = verifier
      run.ready.resolve(verifier)
      try {
        await verifier.run()
      } catch (error) {
        if (isOplogLost(error)) {
          this.#parts.context.journal?.('verification begins again', { error: errorText(error) })
          this.#replaced.add(verifier)
          run.ready = deferred()
        } else run.failure = error
        throw error
      } finally {
        run.stopped.removeEventListener('abort', stop)
        this.#report = verifier.report
        this.#verifier = null
      }
    })
  }

  /** Removes the stored results, so that everything is compared again. */
  discardResults(run: VerificationRun): Promise<void> {
    return run.work.run(() =>
      this.#discardAll().catch((error) => {
        run.failure = error
        throw error
      }),
    )
  }

  #logPass({ report }: Verifier, began: number): void {
    const { hashedDocumentCount: documents, scannedCollectionCount: collections } = report.source
    const seconds = (performance.now() - began) / 1_000
    const { compareMethod, context } = this.#parts
    context.journal?.('verification pass ended', { documents, collections, seconds, compareMethod })
  }

  #countCompared(documents: number): void {
    this.comparedDocuments += documents
  }

  /** The instances that may compare ranges of the first pass. */
  get #helpers(): Helpers {
    const { destination, context, coordination, peers } = this.#parts
    return {
      claims: new RangeClaims(new StoredDocuments(destination, context)),
      others: () => (peers.sync.context.initiallyVerified ? 0 : coordination.othersAtWork),
      isExpired: (owner) => coordination.isExpired(owner),
    }
  }

  #create(onInitiallyVerified: () => void): Verifier {
    const { source, destination, coordination, peers: _, runs, figures, selection, ...shared } = this.#parts
    return new Verifier({
      clusters: { source, destination },
      store: this.store,
      ...shared,
      selection: selection(),
      epoch: coordination.coordinatorEpoch,
      catalog: () => runs.finishing.catalog,
      appliedTime: () => figures.everywhereApplied,
      roundTripMS: () => figures.roundTrips.slowerMS,
      helpers: this.#helpers,
      onCompared: (range) => this.#countCompared(range.source),
      onInitiallyVerified,
    })
  }

  /** Removes the stored results of these collections. The caller has stopped the verifiers of all instances. */
  async discardResultsOf(uuids: readonly string[] | 'all'): Promise<void> {
    if (uuids === 'all') await this.#discardAll()
    else await this.store.removeRanges([...uuids])
  }

  /**
   * Called when the filters have changed. The next verifier reads the source from the stored time, because a stream
   * cannot resume from the token of an event that the new filters exclude.
   */
  async beginAtTime(): Promise<void> {
    const { metadata, coordination } = this.#parts
    const stored = await metadata.loadPosition(streamPartition.source)
    if (stored?.kind !== 'token') return
    const position = { kind: 'time', time: stored.time } as const
    await metadata.savePosition(streamPartition.source, coordination.coordinatorEpoch, position)
  }

  async #discardAll(): Promise<void> {
    // Positions are removed last. Without them the streams begin at the current time, and then no results of earlier
    // comparisons may exist.
    await this.store.clearComparisons()
    await this.#parts.metadata.removePositions(Object.values(streamPartition))
  }

  /** Loads the figures of the last stored verdict, for an instance that is not running. */
  async loadReport(): Promise<void> {
    this.#report = ((await this.store.loadReport()) as Report | null) ?? notStarted
  }

  /** Stops the verifier, which stores its results. Resolves when no run is under way. */
  async stop(): Promise<void> {
    this.offered.stop()
    await Promise.all([this.#latest?.close(), this.offered.ended()])
  }

  /** Stops the verifier. Throws its failure if it has failed, because the commit must not be decided then. */
  async end(): Promise<void> {
    await this.stop()
    if (this.#latest?.failure) throw this.#latest.failure
  }

  /** Called before options are restored. Throws FatalError VerificationFailed when the catalogs that were read differ. */
  async checkDefinitions(configuration: StartConfiguration, read: BothCatalogs): Promise<void> {
    if (!configuration.verification.enabled) return
    this.#verifier?.wake()
    const mismatches = await this.#definitions(configuration, 'deferred', read)
    // Without mismatches the last verdict stays stored until the next verdict replaces it.
    if (mismatches.length > 0) await this.#conclude({ mismatches, total: mismatches.length })
  }

  /**
   * Issues the verdict on documents and definitions. Throws FatalError VerificationFailed when they differ. The
   * differences are stored, and `GET /api/v1/verification/mismatches` returns them.
   * @param applyLate deletes the documents that have expired on the source since its last call, and returns how many;
   * differences that remain when it returns 0 are real
   */
  async issueVerdict(configuration: StartConfiguration, applyLate: () => Promise<number>): Promise<void> {
    if (!configuration.verification.enabled) return
    const observer = this.#latest?.observer
    observer?.verdict('requested')
    try {
      await this.#compare(configuration, applyLate)
    } finally {
      observer?.verdict('ended')
    }
  }

  async #compare(configuration: StartConfiguration, applyLate: () => Promise<number>): Promise<void> {
    // Applications cannot write during this step, so independent work runs in parallel to shorten it.
    const [{ report, verdict }, definitions] = await both(
      this.#documents(applyLate),
      this.#definitions(configuration, 'prepared'),
    )
    this.#parts.atStep('verdict')
    await both(
      this.store.saveReport(report),
      this.#conclude({
        mismatches: [...definitions, ...verdict.mismatches].slice(0, listedMax),
        total: definitions.length + verdict.total,
      }),
    )
  }

  /** Compares all documents that may differ until they are equal or proven different. */
  async #documents(applyLate: () => Promise<number>): Promise<{ report: Report; verdict: Verdict }> {
    for (;;) {
      const result = await this.#resolveRechecks()
      if (result && (result.total === 0 || (await applyLate()) === 0)) {
        return { report: result.report, verdict: await result.explain() }
      }
      // The verifier waits for the deletes of documents that have expired since.
      if (!result) await applyLate()
    }
  }

  /**
   * Resolves with the result of the current verifier, or of the verifier that replaces it in the meantime; null if late
   * deletes must be applied first.
   */
  async #resolveRechecks(): Promise<(RecheckResult & { report: Report }) | null> {
    for (;;) {
      const run = this.#latest
      const verifier = run && (await Promise.race([run.ready.promise, run.ended.then(() => null)]))
      if (!verifier) throw run?.failure ?? new StoppedError('the verifier has stopped')
      try {
        const result = await verifier.issueVerdict()
        return result && { ...result, report: verifier.report }
      } catch (error) {
        await verifier.ended
        await new Promise((resolve) => setImmediate(resolve))
        if (!this.#replaced.has(verifier)) throw error
      }
    }
  }

  async #definitions(
    configuration: StartConfiguration,
    stage: DefinitionStage,
    read?: BothCatalogs,
  ): Promise<Mismatch[]> {
    const { source, destination, runs, context } = this.#parts
    const selection = this.#parts.selection()
    const { buildIndexes } = configuration
    const { catalog } = runs.finishing
    const parts = { clusters: { source, destination }, selection, catalog, context, buildIndexes }
    return await findDefinitionMismatches(parts, stage, read)
  }

  async #conclude({ mismatches, total }: Verdict): Promise<void> {
    await this.store.saveVerdict(mismatches, total)
    this.#parts.context.journal?.('verdict', { differences: total })
    if (total === 0) return
    const [first = { namespace: 'not named', kind: 'content' } as Mismatch] = mismatches
    const id = first.id === undefined ? '' : `, _id ${JSON.stringify(first.id)}`
    const field = first.field === undefined ? '' : ` at ${first.field}`
    throw new FatalError(
      'VerificationFailed',
      `${total} ${total === 1 ? 'difference' : 'differences'} between source and destination; the first: ${first.namespace}${id} ` +
        `(${first.kind}${field}). GET /api/v1/verification/mismatches names them. Run tandem repair, then send resume. ` +
        'The commit is not decided, and no data is lost.',
    )
  }
}

function isOplogLost(error: unknown): boolean {
  return error instanceof FatalError && error.failure === 'OplogWindowLost'
}
