import type { RefusalName } from './errors.ts'
import { peerCommands } from './peer-command.ts'

/** Commands that change what a sync does. Each of them is recorded with the client or instance that sent it. */
export const auditedCommands = [
  ...(['start', 'pause', 'resume', 'commit', 'abort', 'reverse', 'limit', 'repair', 'resync', 'filter'] as const),
  ...peerCommands.map((command) => `all/${command}` as const),
]
export type AuditedCommand = (typeof auditedCommands)[number]

/**
 * The token that a request sent. `none`: the request sent no token or an unknown one, or the instance requires none.
 */
export const tokenUses = ['control', 'read', 'none'] as const
export type TokenUse = (typeof tokenUses)[number]

/** A command as the API of an instance received it, before it ran. The request body is never recorded. */
export interface ReceivedCommand {
  /**
   * Unique for each call. The entry with the outcome has the same id and replaces the entry of the received command.
   */
  id: string
  /** When it was received, ISO 8601. */
  time: string
  command: AuditedCommand
  /** Remote address of the connection: the proxy's, if there is one. Null if it is unknown. */
  remoteAddress: string | null
  token: TokenUse
}

/** A received command with its answer. */
export interface CommandCall extends ReceivedCommand {
  outcome: 'accepted' | 'refused'
  /** Name of the error in the answer; null if the command was accepted. */
  error: RefusalName | null
}

export const auditOutcomes = ['received', 'accepted', 'refused'] as const

/** A command as the audit trail of a sync shows it. */
export interface AuditEntry extends Omit<CommandCall, 'token' | 'outcome'> {
  /** The instance that received it. */
  mongosyncID: string
  /** Null if an earlier release stored the entry, or if another instance passed the command on. */
  token: TokenUse | null
  /**
   * The instance that passed the command on, as named by the command's document in the collection `commands`. Null if
   * that document names no instance. Absent if a client sent the command to this instance.
   */
  sender?: string | null
  /** `received`: the command has no answer yet, or the instance ended before it answered. */
  outcome: (typeof auditOutcomes)[number]
}

/** The number of entries that are kept. The oldest are removed first. */
export const auditEntriesMax = 1_000
