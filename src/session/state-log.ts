import { pathOf } from '../../machines/sync-view.ts'
import { errorStack } from '../domain/error-text.ts'
import { causeOfFailure } from '../domain/errors.ts'
import type { Journal } from '../domain/journal.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import { type InstanceSnapshot, publicState } from './report-progress.ts'

const reportMS = 60_000

/** What the log tells of an instance as a whole: the states it comes to, what ended a sync, and every minute how far it is. */
export class StateLog {
  readonly #journal: Journal
  readonly #retrying: () => string | undefined
  #state: PublicState | null = null
  #path = ''
  /** The state of the sync as a whole, as this instance knows it. */
  #sync: string | null = null
  #told: string | null = null

  /** @param retrying what is being tried again now */
  constructor(journal: Journal, retrying: () => string | undefined) {
    this.#journal = journal
    this.#retrying = retrying
  }

  /** Returns the state where it is another one than before. */
  told(snapshot: InstanceSnapshot): PublicState | null {
    const during = this.#path
    const state = publicState(snapshot)
    const sync = this.#sync
    this.#path = pathOf(snapshot)
    this.#sync = snapshot.context.sync?.state ?? null
    if (this.#sync && this.#sync !== this.#told) {
      this.#told = this.#sync
      this.#journal('sync', { state: this.#sync })
    }
    if (state === this.#state) return null
    this.#state = state
    this.#journal('state', { state, value: snapshot.value })
    const { failure } = snapshot.context
    if (state === 'FAILED' && failure) {
      const [retrying, stack] = [this.#retrying(), errorStack(causeOfFailure(failure))]
      this.#journal('failed', {
        ...failure,
        during,
        ...(sync && { sync }),
        ...(retrying && { retrying }),
        ...(stack && { stack }),
      })
    }
    return state
  }

  /** Begins the report of each minute; disposing of it ends it. Nothing is reported before there is a sync. */
  reporting(progress: () => Progress): Disposable {
    const timer = setInterval(() => {
      const now = progress()
      if (now.state !== 'IDLE') this.#journal('progress', summaryOf(now))
    }, reportMS)
    timer.unref()
    return { [Symbol.dispose]: () => clearInterval(timer) }
  }
}

/** Figures and short texts, each by the name that `progress` has for it. */
function summaryOf(progress: Progress): Record<string, unknown> {
  const { state, info, canCommit, lagTimeSeconds, totalEventsApplied, collectionCopy, verification } = progress
  const { coordinatorID, retrying, oplogSecondsRemaining, warnings = [] } = progress
  return {
    ...{ state, info, canCommit, coordinatorID, lagTimeSeconds, totalEventsApplied },
    ...(collectionCopy ?? {}),
    ...(verification && {
      hashedDocuments: verification.destination.hashedDocumentCount,
      documents: verification.destination.estimatedDocumentCount,
    }),
    ...(oplogSecondsRemaining !== undefined && { oplogSecondsRemaining }),
    ...(retrying && { retrying: retrying.what }),
    warnings: warnings.length,
  }
}
