import type { Finding } from '../domain/finding.ts'
import { printable } from '../domain/printable.ts'
import type { Answer } from './answers.ts'
import { errorLine } from './error-line.ts'

/** The findings of `tandem check` as text: one line for each finding, and its remedy below it. */
export function findingsText(answers: readonly Answer[]): string[] {
  return answers.flatMap(({ url, reply, status }) => {
    if (status === null) return []
    const head = answers.length > 1 ? [printable(url)] : []
    if (reply['success'] !== true) {
      return [...head, printable(errorLine(reply))]
    }
    const findings = findingsIn(reply)
    if (findings.length === 0) return [...head, 'nothing found: start will be accepted']
    return [...head, ...findings.flatMap(linesOf)]
  })
}

/** The lowest severity of a finding for which `tandem check` ends with a failure. */
export const failOnSeverities = ['error', 'warning'] as const
export type FailOn = (typeof failOnSeverities)[number]

/** True if the answer has a finding of this severity or a higher one. With an error, a start would be refused. */
export function hasFinding(reply: Answer['reply'], failOn: FailOn): boolean {
  return findingsIn(reply).some(({ severity }) => severity === 'error' || severity === failOn)
}

function findingsIn(reply: Answer['reply']): Finding[] {
  return Array.isArray(reply['findings']) ? (reply['findings'] as Finding[]) : []
}

function linesOf({ severity, name, message, remedy }: Finding): string[] {
  return [printable(`${severity.padEnd(7)}  ${name}: ${message}`), printable(`         → ${remedy}`)]
}
