import { refuseContradictions, refuseIrreversible } from '../domain/start-rules.ts'
import type { Check } from './check.ts'

/** Options that contradict each other. */
export const checkOptions: Check = ({ configuration }) => {
  refuseContradictions(configuration)
  return []
}

/** What `reversible` asks of both clusters. */
export const checkReversible: Check = ({ configuration, facts }) => {
  refuseIrreversible(configuration, facts.source, facts.destination)
  return []
}
