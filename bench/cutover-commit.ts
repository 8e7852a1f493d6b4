import { setTimeout as delay } from 'node:timers/promises'
import type { Progress } from '../src/domain/progress.ts'
import type { Tandem } from '../test/support/tandem-process.ts'

const pollMS = 10
/** Far above every target, so that a slow cutover is still measured. A cutover that takes longer than this hangs. */
const patienceMS = 900_000

/** Resolves when `canCommit` is true and the lag is 0, which is when an operator would commit. */
export async function untilCaughtUp(tandem: Tandem): Promise<Progress> {
  return await poll(tandem, 'caught up', (progress) => progress.canCommit && progress.lagTimeSeconds === 0)
}

export interface Cutover {
  /** Seconds from sending `commit` until its response. */
  answeredSeconds: number
  /** Seconds from sending `commit` until `canWrite`. */
  canWriteSeconds: number
}

export async function commitUntilCanWrite(tandem: Tandem): Promise<Cutover> {
  const began = performance.now()
  const seconds = (): number => (performance.now() - began) / 1000
  const answer = await tandem.post('commit')
  const answeredSeconds = seconds()
  if (answer.status !== 200) throw new Error(`commit answered ${JSON.stringify(answer.body)}\n${tandem.output()}`)
  await poll(tandem, 'writable', ({ canWrite }) => canWrite === true)
  return { answeredSeconds, canWriteSeconds: seconds() }
}

export async function untilState(tandem: Tandem, wanted: Progress['state']): Promise<void> {
  await poll(tandem, wanted, ({ state }) => state === wanted)
}

/** Returns the figures that predict, before a commit, how long the commit will take. */
export function commitForecast(progress: Progress & { commit?: { estimatedSeconds: number } | null }): {
  verificationLagSeconds: number
  /** Null if this version of tandem does not estimate it. */
  estimatedSeconds: number | null
} {
  const { source, destination } = progress.verification ?? {}
  return {
    verificationLagSeconds: Math.max(source?.lagTimeSeconds ?? 0, destination?.lagTimeSeconds ?? 0),
    estimatedSeconds: progress.commit?.estimatedSeconds ?? null,
  }
}

async function poll(tandem: Tandem, what: string, holds: (progress: Progress) => boolean): Promise<Progress> {
  const deadline = performance.now() + patienceMS
  for (;;) {
    const progress = await tandem.progress()
    if (progress.failure) throw new Error(`tandem failed: ${JSON.stringify(progress.failure)}\n${tandem.output()}`)
    if (holds(progress)) return progress
    if (performance.now() > deadline)
      throw new Error(`tandem is not ${what} after ${patienceMS / 1000} s\n${tandem.output()}`)
    await delay(pollMS)
  }
}
