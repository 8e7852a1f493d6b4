import { setTimeout as sleep } from 'node:timers/promises'
import { FatalError, StoppedError } from '../domain/errors.ts'
import { isTransient, toFatal } from './errors.ts'

/** What is being retried now, for `progress.retrying`. Several rooms may be retrying at once; the oldest is shown. */
export class RetryMonitor {
  readonly #active = new Map<symbol, { what: string; since: Date; reason: string }>()

  begin(key: symbol, what: string, reason: string): void {
    const known = this.#active.get(key)
    this.#active.set(key, { what, since: known?.since ?? new Date(), reason })
  }

  end(key: symbol): void {
    this.#active.delete(key)
  }

  get current(): { what: string; since: string } | undefined {
    let oldest: { what: string; since: Date } | undefined
    for (const entry of this.#active.values()) if (!oldest || entry.since < oldest.since) oldest = entry
    return oldest ? { what: oldest.what, since: oldest.since.toISOString() } : undefined
  }
}

export interface RetryContext {
  monitor: RetryMonitor
  signal: AbortSignal
  /** Called once per failed attempt: for the log. */
  onRetry?: (what: string, error: unknown) => void
}

const firstDelayMS = 50
const longestDelayMS = 2_000
/** mongosync 1.18 gives up on an unreachable cluster after 30 minutes; so do we, in state FAILED, resumable. */
const budgetMS = 30 * 60_000
const workedMS = 60_000

/**
 * Runs idempotent `work` until it succeeds. Transient errors are retried with growing delay for up to 30 minutes; any
 * other error is thrown at once, as FatalError where the operator can act on it. Throws StoppedError once stopped.
 */
export async function retry<T>(what: string, context: RetryContext, work: () => Promise<T>): Promise<T> {
  const key = Symbol(what)
  // As it is now: what began in one life of an instance is not tried again in the next.
  const { signal } = context
  let troubleSince: number | null = null
  let delayMS = firstDelayMS
  try {
    for (;;) {
      if (signal.aborted) throw new StoppedError()
      const attemptedAt = Date.now()
      try {
        return await work()
      } catch (error) {
        if (signal.aborted) throw new StoppedError()
        if (!isTransient(error)) throw toFatal(what, error)
        context.monitor.begin(key, what, error instanceof Error ? error.message : String(error))
        context.onRetry?.(what, error)
        // An attempt that worked for a while before it failed is the end of earlier trouble.
        if (Date.now() - attemptedAt > workedMS) {
          troubleSince = null
          delayMS = firstDelayMS
        }
        troubleSince ??= Date.now()
        if (Date.now() - troubleSince > budgetMS) {
          throw new FatalError(
            'ClusterUnreachable',
            `${what}: no success for ${budgetMS / 60_000} minutes. Mend the cluster or the network and send resume.`,
            { cause: error },
          )
        }
        await sleep(delayMS, undefined, { signal }).catch(() => {})
        delayMS = Math.min(delayMS * 2, longestDelayMS)
      }
    }
  } finally {
    context.monitor.end(key)
  }
}
