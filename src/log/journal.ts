import type { Logger } from 'pino'
import { alwaysWritten, type Journal, journalLevels, textOf } from '../domain/journal.ts'

/** Writes the journal of an instance to its log. */
export function journalOf(log: Logger): Journal {
  // pino allows a child logger to have a lower level than its parent.
  const always = log.child({}, { level: 'trace' })
  return (message, fields) => {
    const written: Logger = alwaysWritten.has(message) ? always : log
    written[journalLevels[message]](fields as object, textOf(message, fields))
  }
}
