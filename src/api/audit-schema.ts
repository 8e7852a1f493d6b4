import * as v from 'valibot'
import { type AuditEntry, auditEntriesMax, auditedCommands, auditOutcomes, tokenUses } from '../domain/audit-entry.ts'
import { refusalNames } from '../domain/errors.ts'
import { numberParameters } from './query-parameters.ts'
import { objectOf } from './strict-schema.ts'

/** The response to `GET /api/v1/audit`. */

const entrySchema = objectOf({
  time: v.pipe(v.string(), v.description('When the command was received, ISO 8601.')),
  mongosyncID: v.pipe(v.string(), v.description('The instance that received the command.')),
  command: v.pipe(v.picklist(auditedCommands), v.description('The command.')),
  remoteAddress: v.nullable(v.pipe(v.string(), v.description('Remote address of the connection; null if unknown.'))),
  token: v.nullable(
    v.pipe(
      v.picklist(tokenUses),
      v.description(
        'The token that the request sent: control (--token or --tokenFile), read (--readTokenFile) or none. Null if an earlier release stored the entry without it, or if another instance passed the command on.',
      ),
    ),
  ),
  sender: v.exactOptional(
    v.nullable(
      v.pipe(
        v.string(),
        v.description(
          'The instance that received the command from a client at /api/v1/all/… and passed it on to this instance; null if unknown, and absent if a client sent the command to this instance.',
        ),
      ),
    ),
  ),
  outcome: v.pipe(
    v.picklist(auditOutcomes),
    v.description(
      'Outcome of the command; received means that there is no answer yet, or that the instance ended before it answered.',
    ),
  ),
  error: v.nullable(
    v.pipe(v.picklist(refusalNames), v.description('Name of the error; null if the command was not refused.')),
  ),
})

export const auditAnswerSchema = objectOf({
  success: v.literal(true),
  entries: v.pipe(v.array(entrySchema), v.description('The newest first, at most 1,000.')),
})

export const auditPage = numberParameters({
  limit: {
    least: 1,
    most: auditEntriesMax,
    usual: auditEntriesMax,
    meaning: 'Maximum number of entries. The newest are listed.',
  },
})

export type AuditAnswer = v.InferOutput<typeof auditAnswerSchema>

/** @param limit maximum number of entries */
export function renderAudit(entries: readonly AuditEntry[], limit: number): AuditAnswer {
  return {
    success: true,
    entries: entries
      .slice(0, limit)
      .map(({ time, mongosyncID, command, remoteAddress, token, sender, outcome, error }) => ({
        time,
        mongosyncID,
        command,
        remoteAddress,
        token,
        ...(sender !== undefined && { sender }),
        outcome,
        error,
      })),
  }
}
