import type { Finding } from '../domain/finding.ts'
import { printable } from '../domain/printable.ts'
import type { Answer } from './answers.ts'

/** The findings of `tandem check` as text: one line for each finding, and its remedy below it. */
export function findingsText(answers: readonly Answer[]): string[] {
  return answers.flatMap(({ url, reply, status }) => {
    if (status === null) return []
    const head = answers.length > 1 ? [printable(url)] : []
    if (reply['success'] !== true) {
      return [...head, printable(`${String(reply['error'])}: ${String(reply['errorDescription'])}`)]
    }
    const findings = findingsIn(reply)
    if (findings.length === 0) return [...head, 'nothing found: start will be accepted']
    return [...head, ...findings.flatMap(linesOf)]
  })
}

/** True if a start would be refused. */
export function hasError(reply: Answer['reply']): boolean {
  return findingsIn(reply).some(({ severity }) => severity === 'error')
}

function findingsIn(reply: Answer['reply']): Finding[] {
  return Array.isArray(reply['findings']) ? (reply['findings'] as Finding[]) : []
}

function linesOf({ severity, name, message, remedy }: Finding): string[] {
  return [printable(`${severity.padEnd(7)}  ${name}: ${message}`), printable(`         → ${remedy}`)]
}
