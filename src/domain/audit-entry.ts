import type { RefusalName } from './errors.ts'
import { teamCommands } from './team-command.ts'

/** Commands that change what a sync does; whoever sends one is written down. */
export const auditedCommands = [
  ...(['start', 'pause', 'resume', 'commit', 'abort', 'reverse', 'limit', 'repair'] as const),
  ...teamCommands.map((command) => `all/${command}` as const),
]
export type AuditedCommand = (typeof auditedCommands)[number]

/** One command as it came to the API of an instance. Never what its body said. */
export interface CommandCall {
  /** When it was received, ISO 8601. */
  time: string
  command: AuditedCommand
  /** The other end of the connection: of a proxy, where there is one. Null when it is not known any more. */
  remoteAddress: string | null
  outcome: 'accepted' | 'refused'
  /** Name of the error it was answered with; null when it was accepted. */
  error: RefusalName | null
}

/** The same, as the trail of a sync shows it. */
export interface AuditEntry extends CommandCall {
  /** The instance that was asked. */
  mongosyncID: string
}

/** As many are kept; the oldest go first. */
export const auditEntriesMax = 1_000
