import type { Journal } from '../domain/journal.ts'
import type { Progress } from '../domain/progress.ts'
import type { WorkMeter } from '../domain/work-meter.ts'

const pollMS = 1_000
const reportMS = 60_000
/** Minimum interval, ms, when only `canCommit` has changed. This may happen often while the lag is near its limit. */
const changedMS = 10_000

export interface MongosyncLogParts {
  journal: Journal
  meter: WorkMeter
  progress: () => Progress
  /** The answer of `GET /api/v1/progress` as JSON. */
  answerOf: (progress: Progress) => string
  /** Counts the segments of the copy: those that are copied, and all of them. Null before the sync exists. */
  segments: () => Promise<{ written: number; total: number } | null>
}

/**
 * Writes the figures of a sync in lines that have the messages and fields of mongosync's log, so that tools that read
 * that log also read tandem's. MongoDB's Mongosync Insights draws its charts from them (github.com/mongodb/support-tools,
 * migration/mongosync_insights/lib/logs_metrics.py, 0.9.0.16). A group of lines is written once a minute, and when the
 * state, the phase, `canWrite` or `canCommit` has changed.
 */
export class MongosyncLog {
  readonly #parts: MongosyncLogParts
  /** When the counts were last taken, and their values. The next rates are computed from them. */
  #counted = { at: 0, events: 0, applied: 0 }
  /** The last report; null before the first. */
  #last: { key: string; canCommit: boolean; at: number } | null = null
  #counting = false
  /** True when the segments were counted after the copy had ended. A short copy may end before the first report. */
  #countedAtEnd = false

  constructor(parts: MongosyncLogParts) {
    this.#parts = parts
  }

  /** Starts the reports. Disposing of the result writes the last report. Nothing is reported before the sync exists. */
  reporting(): Disposable {
    this.#count(this.#parts.progress())
    const timer = setInterval(() => this.#report(false), pollMS)
    timer.unref()
    return {
      [Symbol.dispose]: () => {
        clearInterval(timer)
        this.#report(true)
      },
    }
  }

  #report(isLast: boolean): void {
    const { journal, meter, progress: current, answerOf } = this.#parts
    const progress = current()
    // Tools that read the log expect figures of the copy in every answer, so nothing is reported without them. The rates
    // of the first report are computed from these counts, because a small sync may be up to date before that report.
    if (progress.state === 'IDLE' || !progress.collectionCopy) {
      this.#count(progress)
      return
    }
    const last = this.#last
    const key = `${progress.state} ${progress.info} ${progress.canWrite}`
    const now = Date.now()
    const dueMS = !last || last.key !== key ? 0 : last.canCommit !== progress.canCommit ? changedMS : reportMS
    if (!isLast && last && now - last.at < dueMS) return
    this.#last = { key, canCommit: progress.canCommit, at: now }
    const before = this.#counted
    const { at, events, applied } = this.#count(progress)
    const seconds = (at - before.at) / 1_000

    journal('Replication progress', {
      ...replicationOf(progress),
      ...(seconds > 0 && { eventApplicationRatePerSecond: perSecond(applied - before.applied, seconds) }),
    })
    journal('sent response', { method: 'GET', uri: '/api/v1/progress', body: answerOf(progress) })
    if (seconds > 0) {
      journal('Average Source CRUD events rate', { srcCRUDEventsPerSec: perSecond(events - before.events, seconds) })
    }
    journal('Operation duration stats', operationsOf(progress, meter))
    const isCopying = progress.info === 'collection copy'
    if ((isCopying || !this.#countedAtEnd) && !isLast) this.#countSegments(!isCopying)
  }

  #count(progress: Progress): { at: number; events: number; applied: number } {
    const { streamEvents: events } = this.#parts.meter
    this.#counted = { at: Date.now(), events, applied: progress.totalEventsApplied ?? 0 }
    return this.#counted
  }

  /** Counts in the background, because the destination may not answer. */
  #countSegments(hasEnded: boolean): void {
    if (this.#counting) return
    this.#counting = true
    const { journal, segments } = this.#parts
    segments()
      .then((counts) => {
        this.#countedAtEnd = hasEnded
        if (counts && counts.total > 0) journal('Completed writing N / M partitions to destination cluster', counts)
      })
      .catch(() => {}) // the work on the destination reports that it does not answer
      .finally(() => {
        this.#counting = false
      })
  }
}

function replicationOf(progress: Progress): Record<string, unknown> {
  const { state, info, lagTimeSeconds, totalEventsApplied, estimatedOplogTimeRemaining, verification } = progress
  return {
    ...{ state, info, lagTimeSeconds, totalEventsApplied },
    ...(estimatedOplogTimeRemaining !== undefined && { estimatedOplogTimeRemaining }),
    ...(verification && {
      verifierSrcLagTimeSeconds: verification.source.lagTimeSeconds,
      verifierDstLagTimeSeconds: verification.destination.lagTimeSeconds,
    }),
  }
}

/** The durations since the last line; an operation that did not run is left out. */
function operationsOf({ source, destination }: Progress, { durations }: WorkMeter): Record<string, unknown> {
  const named = {
    CollectionCopySourceRead: durations.copyRead.takeRecent(),
    CollectionCopyDestinationWrite: durations.copyWrite.takeRecent(),
    CEASourceRead: durations.applyRead.takeRecent(),
    CEADestinationWrite: durations.applyWrite.takeRecent(),
  }
  return {
    ...Object.fromEntries(Object.entries(named).filter(([, recent]) => recent !== null)),
    ...(source && { sourcePingLatencyMs: pingOf(source) }),
    ...(destination && { destinationPingLatencyMs: pingOf(destination) }),
  }
}

function pingOf({ pingLatencyMs }: { pingLatencyMs: number }): number | 'unreachable' {
  return pingLatencyMs < 0 ? 'unreachable' : pingLatencyMs
}

function perSecond(count: number, seconds: number): number {
  return Math.round((Math.max(0, count) / seconds) * 100) / 100
}
