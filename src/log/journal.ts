import type { Logger } from 'pino'
import { alwaysWritten, type Journal, journalLevels } from '../domain/journal.ts'

/** The journal of an instance, as lines of its log. */
export function journalOf(log: Logger): Journal {
  // A child may let more pass than its parent does.
  const always = log.child({}, { level: 'trace' })
  return (message, fields) => {
    const written: Logger = alwaysWritten.has(message) ? always : log
    written[journalLevels[message]](fields as object, message as string)
  }
}
