import type { RefusalName } from './errors.ts'
import { teamCommands } from './peer-command.ts'

/** Commands that change what a sync does; each of them is written down with who sent it. */
export const auditedCommands = [
  ...(['start', 'pause', 'resume', 'commit', 'abort', 'reverse', 'limit', 'repair'] as const),
  ...teamCommands.map((command) => `all/${command}` as const),
]
export type AuditedCommand = (typeof auditedCommands)[number]

/** The token that a request showed. `none`: none at all, or one that the instance does not know, or no token is asked for. */
export const tokenUses = ['control', 'read', 'none'] as const
export type TokenUse = (typeof tokenUses)[number]

/** One command as it came to the API of an instance, before it is carried out. Never what its body said. */
export interface ReceivedCommand {
  /** Of this call alone: the entry of its outcome replaces the one of its receipt. */
  id: string
  /** When it was received, ISO 8601. */
  time: string
  command: AuditedCommand
  /** The other end of the connection: of a proxy, where there is one. Null when it is not known any more. */
  remoteAddress: string | null
  token: TokenUse
}

/** The same with its answer. */
export interface CommandCall extends ReceivedCommand {
  outcome: 'accepted' | 'refused'
  /** Name of the error it was answered with; null when it was accepted. */
  error: RefusalName | null
}

export const auditOutcomes = ['received', 'accepted', 'refused'] as const

/** What the trail of a sync shows of a command. */
export interface AuditEntry extends Omit<CommandCall, 'token' | 'outcome'> {
  /** The instance that received it. */
  mongosyncID: string
  /** Null in an entry that an earlier release stored. */
  token: TokenUse | null
  /** `received`: no answer yet, or the instance ended before there was one. */
  outcome: (typeof auditOutcomes)[number]
}

/** As many are kept; the oldest go first. */
export const auditEntriesMax = 1_000
