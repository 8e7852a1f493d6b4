import type { DefinitionStage } from '../definitions/compare-definitions.ts'
import { findDefinitionMismatches } from '../definitions/read-definitions.ts'
import type { Catalogue } from '../domain/catalogue.ts'
import type { ClusterTime } from '../domain/cluster-time.ts'
import { deferred } from '../domain/deferred.ts'
import { errorText } from '../domain/error-text.ts'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { listedMax, type Mismatch, type RecheckResult, type Verdict } from '../domain/mismatch.ts'
import type { Progress } from '../domain/progress.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import type { Cluster } from '../mongo/cluster.ts'
import type { Metadata } from '../mongo/metadata.ts'
import type { RetryContext } from '../mongo/retry.ts'
import type { Selection } from '../mongo/selection.ts'
import { VerificationStore } from '../mongo/verification-store.ts'
import type { Throttle } from '../throttle/throttle.ts'
import { streamPartition } from '../verify/checkpoint.ts'
import { Verifier } from '../verify/verifier.ts'

export interface VerificationParts {
  source: Cluster
  destination: Cluster
  metadata: Metadata
  context: RetryContext
  selection: Selection
  throttle: Throttle
  atStep: (step: string) => void
  epoch: () => number
  catalogue: () => Catalogue
  appliedTime: () => ClusterTime
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

/** The embedded verifier's life within one sync: it begins when the copy has ended and speaks when the commit asks. */
export class Verification {
  readonly store: VerificationStore
  readonly #parts: VerificationParts
  #verifier: Verifier | null = null
  /** Verifiers that lost their place in an oplog; another one has taken over. */
  readonly #beganAnew = new WeakSet<Verifier>()
  #failure: unknown = null
  #ready = deferred<Verifier>()
  readonly #copied = deferred<void>()
  #run: Promise<void> = Promise.resolve()
  #runs = 0
  #stopped = new AbortController()
  #report: Report = notStarted

  constructor(parts: VerificationParts) {
    this.#parts = parts
    this.store = new VerificationStore(parts.destination, parts.context)
  }

  /** Null where verification is switched off. */
  report(configuration: StartConfiguration): Progress['verification'] {
    if (!configuration.verification.enabled) return null
    return this.#verifier?.report ?? this.#report
  }

  /** Null while nothing is verified here. */
  get backlog(): { open: number; perSecond: number } | null {
    return this.#verifier?.backlog ?? null
  }

  /** Both clusters have answered the present run with the change streams from where an earlier one had stopped. */
  get continues(): boolean {
    const isPresent = this.#runs === 1 && !this.#stopped.signal.aborted
    return isPresent && (this.#verifier?.continues ?? false)
  }

  /** A verifier is at work, or about to be. */
  get running(): boolean {
    return this.#runs > 0
  }

  /** Resolves when no run that was begun is under way any more, in whichever way it ended. */
  get ended(): Promise<void> {
    return this.#run
  }

  /** Every document has been copied once. */
  copied(): void {
    this.#copied.resolve()
  }

  /** Verifies until stopped; rejects on a failure. Waits for an earlier run to end, and for the copy. */
  run(configuration: StartConfiguration, report: (what: 'hashed' | 'restarted') => void): Promise<void> {
    if (!configuration.verification.enabled) return Promise.resolve()
    const stopped = new AbortController()
    this.#stopped = stopped
    this.#ready = deferred()
    this.#runs += 1
    const run = this.#run
      .then(() => this.#verify(stopped.signal, report))
      .finally(() => {
        this.#runs -= 1
      })
    this.#failure = null
    this.#run = run.catch((error) => {
      this.#failure = error
    })
    return run
  }

  async #verify(stopped: AbortSignal, report: (what: 'hashed' | 'restarted') => void): Promise<void> {
    await Promise.race([this.#copied.promise, aborted(stopped)])
    for (;;) {
      if (stopped.aborted) return
      const began = performance.now()
      this.#parts.context.journal?.('verification began', {})
      const verifier = this.#create(() => {
        this.#logPass(verifier, began)
        report('hashed')
      })
      const stop = (): void => verifier.stop()
      stopped.addEventListener('abort', stop, { once: true })
      this.#verifier = verifier
      this.#ready.resolve(verifier)
      try {
        return await verifier.run()
      } catch (error) {
        if (!(error instanceof FatalError) || error.failure !== 'OplogWindowLost') throw error
        // What changed since is unknown to the verifier only (if the application has lost it too, it says so itself).
        this.#parts.context.journal?.('verification begins again', { error: errorText(error) })
        this.#beganAnew.add(verifier)
        this.#ready = deferred()
        report('restarted')
        await this.#forget()
      } finally {
        stopped.removeEventListener('abort', stop)
        this.#report = verifier.report
        this.#verifier = null
      }
    }
  }

  #logPass({ report }: Verifier, began: number): void {
    const { hashedDocumentCount: documents, scannedCollectionCount: collections } = report.source
    const seconds = (performance.now() - began) / 1_000
    this.#parts.context.journal?.('verification pass ended', { documents, collections, seconds })
  }

  #create(onHashed: () => void): Verifier {
    const { source, destination, ...shared } = this.#parts
    return new Verifier({
      clusters: { source, destination },
      store: this.store,
      ...shared,
      epoch: shared.epoch(),
      onHashed,
    })
  }

  /** Everything is to be compared again. */
  async #forget(): Promise<void> {
    // Positions last: without them the streams begin now, and nothing of before may count as compared then.
    await this.store.forget()
    await this.#parts.metadata.removePositions(Object.values(streamPartition))
  }

  /** The figures of the verdict that a predecessor in this sync came to. */
  async look(): Promise<void> {
    this.#report = ((await this.store.loadReport()) as Report | null) ?? notStarted
  }

  /** What is done is stored; resolves when nothing of it runs any more. */
  async stop(): Promise<void> {
    this.#stopped.abort()
    await this.#run
  }

  /** Stops, and throws what it had failed with: nothing may be handed over then. */
  async end(): Promise<void> {
    await this.stop()
    if (this.#failure) throw this.#failure
  }

  /** Throws FatalError VerificationFailed when definitions differ already before anything is restored. */
  async checkDefinitions(configuration: StartConfiguration, stage: DefinitionStage): Promise<void> {
    if (!configuration.verification.enabled) return
    this.#verifier?.wake()
    const mismatches = await this.#definitions(configuration, stage)
    // Where nothing differs the verdict that follows replaces what the last one found.
    if (mismatches.length > 0) await this.#conclude({ mismatches, total: mismatches.length })
  }

  /**
   * The verdict on documents and definitions. Throws FatalError VerificationFailed with what differs; it is stored and
   * named by `GET /api/v1/verification/mismatches`.
   * @param applyLate applies what expired on the source since, and tells how much; what differs without that is real
   */
  async settle(configuration: StartConfiguration, applyLate: () => Promise<number>): Promise<void> {
    if (!configuration.verification.enabled) return
    let { total, explain, report } = await this.#settled()
    while (total > 0 && (await applyLate()) > 0) ({ total, explain, report } = await this.#settled())
    const verdict = await explain()
    const definitions = await this.#definitions(configuration, 'prepared')
    this.#parts.atStep('verdict')
    await this.store.saveReport(report)
    await this.#conclude({
      mismatches: [...definitions, ...verdict.mismatches].slice(0, listedMax),
      total: definitions.length + verdict.total,
    })
  }

  /** What the present verifier finds; when it has to begin anew meanwhile, the next one is asked. */
  async #settled(): Promise<RecheckResult & { report: Report }> {
    for (;;) {
      const verifier = await Promise.race([this.#ready.promise, this.#run.then(() => null)])
      if (!verifier) throw this.#failure ?? new StoppedError('the verifier has stopped')
      try {
        return { ...(await verifier.settle()), report: verifier.report }
      } catch (error) {
        await verifier.ended
        await new Promise((resolve) => setImmediate(resolve))
        if (!this.#beganAnew.has(verifier)) throw error
      }
    }
  }

  async #definitions(configuration: StartConfiguration, stage: DefinitionStage): Promise<Mismatch[]> {
    const { source, destination, catalogue, selection, context } = this.#parts
    const buildsIndexes = configuration.buildIndexes !== 'never'
    const parts = { clusters: { source, destination }, selection, catalogue: catalogue(), context }
    return await findDefinitionMismatches(parts, stage, buildsIndexes)
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
        `(${first.kind}${field}). GET /api/v1/verification/mismatches names them. Run tandem repair, then send resume.`,
    )
  }
}

function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}
