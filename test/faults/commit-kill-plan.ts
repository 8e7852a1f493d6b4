import { Random } from '../support/random.ts'
import { commitSteps } from './instance-faults.ts'

/** How the operator reaches COMMITTED: directly, or after a rehearsal, an abort or a commit with a time limit. */
const ways = ['commit', 'dryRun', 'abort', 'maxSeconds'] as const
export type CommitWay = (typeof ways)[number]

/** Steps of a commit at which a coordinator kills itself. */
export const crashSteps = [...commitSteps, 'lastCheck', 'decide', 'unblocked', 'restoreBalancer'] as const

export interface CommitKillPlan {
  instances: number
  way: CommitWay
  enableUserWriteBlocking: 'sourceAndDestination' | 'destinationOnly'
  /** The destination's client tries to write from the first command on, instead of waiting until `canWrite` is shown. */
  eager: boolean
  /** The step at which the coordinator kills itself, or the times in ms after the first command at which an instance is killed. */
  death: { atStep: string } | { afterMS: number[]; whom: 'an instance' | 'the coordinator' }
  /** Milliseconds until a killed instance is restarted. Null: it is never restarted, and the other instance takes over. */
  awayMS: number | null
  /** Milliseconds between `commit` and the abort. */
  abortAfterMS: number
  maxSeconds: number
}

/**
 * Even seeds kill the coordinator at the next step of `crashSteps`. Odd seeds kill an instance or the coordinator at
 * random moments.
 */
export function randomCommitKill(seed: number): CommitKillPlan {
  const random = new Random(`commit kill ${seed}`)
  const instances = random.int(1, 2)
  const moments = Array.from({ length: random.int(1, 2) }, () => random.int(0, 1_200))
  const step = crashSteps[Math.floor(seed / 2) % crashSteps.length] ?? ''
  const plan: CommitKillPlan = {
    instances,
    way: random.pick(ways),
    enableUserWriteBlocking: random.chance(0.75) ? 'sourceAndDestination' : 'destinationOnly',
    eager: random.chance(0.5),
    death:
      seed % 2 === 0
        ? { atStep: step }
        : { afterMS: moments, whom: random.chance(0.5) ? 'an instance' : 'the coordinator' },
    awayMS: instances === 2 && random.chance(0.3) ? null : random.int(0, 1_500),
    abortAfterMS: random.int(0, 1_500),
    maxSeconds: random.int(1, 2),
  }
  // The step exists only if `start` requests that the source is blocked.
  if (step === 'blockSource' && seed % 2 === 0) plan.enableUserWriteBlocking = 'sourceAndDestination'
  return plan
}

export function describePlan({ instances, way, death, awayMS, ...plan }: CommitKillPlan): string {
  const how = way === 'commit' ? '' : way === 'abort' ? `, abort after ${plan.abortAfterMS} ms` : `, ${way} first`
  const when =
    'atStep' in death
      ? `coordinator killed at ${death.atStep}`
      : `${death.whom} killed after ${death.afterMS.join(' and ')} ms`
  return (
    `${instances === 1 ? 'one instance' : `${instances} instances`}, ${plan.enableUserWriteBlocking}${how}, ${when}, ` +
    `${awayMS === null ? 'never back' : `back after ${awayMS} ms`}${plan.eager ? ', eager users' : ''}`
  )
}
