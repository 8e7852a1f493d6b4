import { refuseContradictions, refuseIrreversible } from '../domain/start-rules.ts'
import type { Check } from './check.ts'

/** Refuses options that contradict each other. */
export const checkOptions: Check = ({ configuration }) => {
  refuseContradictions(configuration)
  return []
}

/** Checks the requirements of `reversible` on both clusters. */
export const checkReversible: Check = ({ configuration, facts }) => {
  refuseIrreversible(configuration, facts.source, facts.destination)
  return []
}
