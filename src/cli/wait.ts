import { setTimeout as sleep } from 'node:timers/promises'
import { printable } from '../domain/printable.ts'
import type { Progress } from '../domain/progress.ts'
import type { Access } from './access.ts'
import { errorLine } from './error-line.ts'
import { exitCodes } from './exit-codes.ts'
import { type Sample, takeSample } from './samples.ts'
import { headline } from './view.ts'

/** Conditions that a script can wait for. All instances must meet the condition. Later states meet `canCommit` too. */
export const conditions = {
  running: ({ state }: Progress) => state === 'RUNNING',
  canCommit: ({ canCommit, state }: Progress) => canCommit || state === 'COMMITTING' || state === 'COMMITTED',
  paused: ({ state }: Progress) => state === 'PAUSED',
  canWrite: ({ canWrite }: Progress) => canWrite === true,
  committed: ({ state }: Progress) => state === 'COMMITTED',
} as const

export interface WaitRequest {
  urls: string[]
  access?: Access | undefined
  until: keyof typeof conditions
  /** Null waits without a limit. */
  timeoutSeconds: number | null
  json: boolean
}

export interface WaitOutput {
  out: (line: string) => void
  /** Prints why an instance did not answer. */
  err: (line: string) => void
  /** Prints the state while waiting; on a terminal each line replaces the one before. */
  report: (line: string) => void
  /** True if the reports go to a terminal. */
  interactive: boolean
}

export const waitCodes = {
  reached: exitCodes.success,
  failed: exitCodes.negative,
  timedOut: exitCodes.timedOut,
  denied: exitCodes.refused,
} as const

const pollMS = 500
const reportMS = { interactive: 500, logged: 30_000 }

/**
 * Waits until the condition holds for every instance. An instance that does not answer may be restarting, so the
 * command waits for it. It does not wait for an instance that denies access, for example because of the token.
 */
export async function runWait(request: WaitRequest, output: WaitOutput): Promise<number> {
  const startedAt = performance.now()
  const elapsed = (): number => (performance.now() - startedAt) / 1_000
  let reportedAt = Number.NEGATIVE_INFINITY
  for (;;) {
    const sample = await takeSample(request)
    const failed = sample.answered.find(({ state }) => state === 'FAILED')
    const isReached = sample.unanswered.length === 0 && sample.answered.every(conditions[request.until])
    if (isReached) return conclude('reached', sample)
    if (failed) return conclude('failed', sample)
    if (sample.unanswered.some(({ denied }) => denied)) return conclude('denied', sample)
    if (request.timeoutSeconds !== null && elapsed() >= request.timeoutSeconds) return conclude('timedOut', sample)
    if (performance.now() - reportedAt >= (output.interactive ? reportMS.interactive : reportMS.logged)) {
      reportedAt = performance.now()
      const reasons = sample.unanswered.map(({ why }) => `; ${why}`)
      output.report(printable(`${request.until}: ${elapsed().toFixed(0)} s, ${headline(sample)}${reasons.join('')}`))
    }
    const left = request.timeoutSeconds === null ? pollMS : Math.max(0, (request.timeoutSeconds - elapsed()) * 1_000)
    await sleep(Math.min(pollMS, left))
  }

  function conclude(outcome: keyof typeof waitCodes, sample: Sample): number {
    const seconds = Math.round(elapsed() * 10) / 10
    if (request.json) {
      const { answered, unanswered } = sample
      output.out(JSON.stringify({ outcome, until: request.until, seconds, progress: answered, unanswered }))
    } else {
      for (const line of sentences(outcome, sample, seconds)) output.out(printable(line))
      if (outcome !== 'reached') for (const { why } of sample.unanswered) output.err(printable(`error: ${why}`))
    }
    return waitCodes[outcome]
  }

  function sentences(outcome: keyof typeof waitCodes, { answered }: Sample, seconds: number): string[] {
    if (outcome === 'reached') return [`${request.until} after ${seconds} s`]
    const reasons = answered.flatMap(({ failure }) => (failure ? [errorLine(failure)] : []))
    if (outcome === 'failed') return ['FAILED', ...new Set(reasons)]
    if (outcome === 'denied') return ['access denied']
    return [`not ${request.until} after ${seconds} s`, ...new Set(reasons)]
  }
}
