import { type Pair, startPair } from '../clusters.ts'
import { runCorruption } from '../corruption-run.ts'
import { corruptions, type Phase, phases } from '../corruptions.ts'
import type { FaultPlan } from '../plan.ts'

export interface CorruptionPlanOptions {
  /** Default: all. */
  phases?: string[] | undefined
  /** Only corruptions whose name contains this text are run. */
  only: string
  /** Number of the first corruption to run, counted from 1. */
  from: number
}

/**
 * Runs every corruption in every phase of a migration. Either the verifier must report exactly the corruption and
 * `repair` must remove it, or the corruption must be gone before the verdict for the reason that is printed.
 */
export function corruptionPlan(options: CorruptionPlanOptions): FaultPlan<Pair> {
  const chosen: readonly Phase[] = options.phases ? phases.filter((phase) => options.phases?.includes(phase)) : phases
  const numbered = corruptions.map((corruption, at) => ({ corruption, number: at + 1 }))
  return {
    open: () => startPair(),
    runs: chosen.flatMap((phase) =>
      numbered
        .filter(({ number, corruption }) => number >= options.from && corruption.name.includes(options.only))
        .filter(({ corruption }) => (corruption.phases ?? phases).includes(phase))
        .map(({ number, corruption }) => ({
          name: `${phase} ${number}: ${corruption.name}`,
          perform: async (pair: Pair) => {
            const { outcome, problems } = await runCorruption(pair, phase, corruption)
            const reason = outcome === 'gone' ? ` before the verdict, because ${corruption.gone?.[phase]}` : ''
            return { problems, kind: outcome, summary: `${outcome}${reason}` }
          },
        })),
    ),
  }
}
