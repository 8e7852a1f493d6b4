import { pathOf } from '../../machines/sync-view.ts'
import { errorDetails } from '../domain/error-details.ts'
import { errorStack } from '../domain/error-text.ts'
import { causeOfFailure, type Failure } from '../domain/errors.ts'
import type { Journal } from '../domain/journal.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import { type InstanceSnapshot, publicState } from './report-progress.ts'

const reportMS = 60_000

/** Logs each state of an instance, the failure that ended a sync, and the progress once a minute. */
export class StateLog {
  readonly #journal: Journal
  readonly #retrying: () => string | undefined
  #state: PublicState | null = null
  /** The failure that was logged last; null while the instance has not failed. */
  #failure: Failure | null = null
  #path = ''
  /** The state of the sync as a whole, as this instance knows it. */
  #sync: string | null = null
  #loggedSync: string | null = null
  /** Null while this instance takes part in no sync. */
  #phases: Pick<InstanceSnapshot['context'], 'copyCompleted' | 'commitRequested'> | null = null

  /** @param retrying names the operation that is being retried now */
  constructor(journal: Journal, retrying: () => string | undefined) {
    this.#journal = journal
    this.#retrying = retrying
  }

  /** Logs what has changed. Returns the public state if it differs from the previous one, else null. */
  logged(snapshot: InstanceSnapshot): PublicState | null {
    const during = this.#path
    const state = publicState(snapshot)
    const sync = this.#sync
    this.#path = pathOf(snapshot)
    this.#sync = snapshot.context.sync?.state ?? null
    if (this.#sync && this.#sync !== this.#loggedSync) {
      this.#loggedSync = this.#sync
      this.#journal('sync', { state: this.#sync })
      if (this.#sync === 'initialising') this.#journal('Starting initializing collections and indexes phase', {})
    }
    this.#logPhases(snapshot)
    const isEntered = state !== this.#state
    this.#state = state
    if (isEntered) this.#journal('state', { state, value: snapshot.value })
    const { failure } = snapshot.context
    // In FAILED, only the loss of the lease to another process replaces the failure. Until then the machine keeps the same
    // object.
    const isNew = failure !== this.#failure
    this.#failure = failure
    if (state === 'FAILED' && failure && isNew) {
      const cause = causeOfFailure(failure)
      const [retrying, stack] = [this.#retrying(), errorStack(cause)]
      this.#journal('failed', {
        ...failure,
        ...errorDetails(failure.error, cause),
        during,
        ...(sync && { sync }),
        ...(retrying && { retrying }),
        ...(stack && { stack }),
      })
    }
    return isEntered ? state : null
  }

  /** Logs the phases under the names of mongosync's log. src/copy logs the phases of the copy. */
  #logPhases({ context }: InstanceSnapshot): void {
    const { configuration, copyCompleted, commitRequested } = context
    const before = this.#phases
    this.#phases = configuration && { copyCompleted, commitRequested }
    // If the first snapshot already shows a complete copy or a commit, these phases began before this process started.
    if (before === null) return
    if (copyCompleted && !before.copyCompleted) this.#journal('Starting change event application phase', {})
    if (commitRequested && !before.commitRequested) this.#journal('Commit handler called', {})
  }

  /** Starts the report every minute; disposing of the result ends it. Nothing is reported before the sync exists. */
  reporting(progress: () => Progress): Disposable {
    const timer = setInterval(() => {
      const now = progress()
      if (now.state !== 'IDLE') this.#journal('progress', summaryOf(now))
    }, reportMS)
    timer.unref()
    return { [Symbol.dispose]: () => clearInterval(timer) }
  }
}

/** Figures and short texts, under the names that `progress` uses. */
function summaryOf(progress: Progress): Record<string, unknown> {
  const { state, info, canCommit, lagTimeSeconds, totalEventsApplied, collectionCopy, verification } = progress
  const { coordinatorID, retrying, oplogSecondsRemaining, convergingCollections, warnings = [] } = progress
  return {
    ...{ state, info, canCommit, coordinatorID, lagTimeSeconds, totalEventsApplied },
    ...(collectionCopy ?? {}),
    ...(convergingCollections && { convergingCollections }),
    ...(verification && {
      hashedDocuments: verification.destination.hashedDocumentCount,
      documents: verification.destination.estimatedDocumentCount,
    }),
    ...(oplogSecondsRemaining !== undefined && { oplogSecondsRemaining }),
    ...(retrying && { retrying: retrying.what }),
    warnings: warnings.length,
  }
}
