import { type Pair, startPair } from '../clusters.ts'
import { type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { type KillCase, killCases, runVerifierKill } from '../verifier-kill.ts'

/** Kills the process in every phase of the verifier and at every step of a commit, with and without a planted difference. */
export function verifierKillPlan(options: PlanOptions): FaultPlan<Pair> {
  return {
    open: () => startPair({ oplogSizeMB: 2_048, bulk: 120_000 }),
    runs: seedsOf(options).map((seed) => {
      const one = killCases[seed % killCases.length] as KillCase
      return {
        name: `kill of the verifier, seed ${seed}: ${one.moment}${one.planted ? ', with a difference planted' : ''}`,
        perform: async (pair) => {
          const { problems, rangesBefore, rangesReadAgain } = await runVerifierKill(pair, seed, one)
          return { problems, summary: `${rangesReadAgain} of ${rangesBefore} ranges read again` }
        },
      }
    }),
  }
}
