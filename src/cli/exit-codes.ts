import type { Answer } from './answers.ts'
import { type FailOn, hasFinding } from './findings.ts'

/**
 * The exit codes of the commands that send requests to instances. Scripts rely on them, so a code never changes its
 * meaning. The table in docs/cli.md has the exit codes of all commands.
 */
export const exitCodes = {
  success: 0,
  /** check has a finding, wait found a FAILED instance, or the operator did not confirm the command. */
  negative: 1,
  /** The command line, or a file that it names, is invalid. Nothing was sent. */
  invalid: 2,
  /** The condition of wait did not hold in time. */
  timedOut: 3,
  /** An instance refused the command and changed nothing. */
  refused: 4,
  /**
   * No instance answered at an address, or another program did. No instance has received a command that changes
   * anything.
   */
  unreachable: 5,
  /** An instance failed while it performed the command, or the connection broke. The outcome may be unknown. */
  failed: 6,
} as const

export type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

/**
 * Returns the highest of the exit codes for the answers of all instances. The codes are ordered so that a higher one
 * leaves a script with less knowledge of the outcome.
 */
export function exitCodeOf(answers: readonly Answer[], failOn: FailOn = 'error'): ExitCode {
  return Math.max(exitCodes.success, ...answers.map((answer) => codeOf(answer, failOn))) as ExitCode
}

function codeOf({ reply, status, outcomeUnknown }: Answer, failOn: FailOn): ExitCode {
  if (status === null) return outcomeUnknown ? exitCodes.failed : exitCodes.unreachable
  if (reply['success'] !== true) return status >= 500 ? exitCodes.failed : exitCodes.refused
  return hasFinding(reply, failOn) ? exitCodes.negative : exitCodes.success
}
