import * as v from 'valibot'
import { type AuditEntry, auditedCommands } from '../domain/audit-entry.ts'
import { refusalNames } from '../domain/errors.ts'
import { objectOf } from './strict-schema.ts'

/** The answer of `GET /api/v1/audit`. */

const entrySchema = objectOf({
  time: v.pipe(v.string(), v.description('When the command was received, ISO 8601.')),
  mongosyncID: v.pipe(v.string(), v.description('The instance that was asked.')),
  command: v.pipe(v.picklist(auditedCommands), v.description('The command.')),
  remoteAddress: v.nullable(v.pipe(v.string(), v.description('Where the connection came from; null: not known.'))),
  outcome: v.pipe(v.picklist(['accepted', 'refused']), v.description('What became of it.')),
  error: v.nullable(v.pipe(v.picklist(refusalNames), v.description('Name of the error; null: accepted.'))),
})

export const auditAnswerSchema = objectOf({
  success: v.literal(true),
  entries: v.pipe(v.array(entrySchema), v.description('The newest first, a thousand at most.')),
})

export function renderAudit(entries: readonly AuditEntry[]): v.InferOutput<typeof auditAnswerSchema> {
  return {
    success: true,
    entries: entries.map(({ time, mongosyncID, command, remoteAddress, outcome, error }) => ({
      time,
      mongosyncID,
      command,
      remoteAddress,
      outcome,
      error,
    })),
  }
}
