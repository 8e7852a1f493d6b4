import { join } from 'node:path'
import { type Logger, pino } from 'pino'

/**
 * JSON lines with mongosync's field names: `level` in lower case, `time` as RFC 3339, `mongosyncID`, `message`. Never a
 * connection string, never a document.
 */
export function createLog(options: { level: string; mongosyncID: string; logPath: string | null }): Logger {
  const destination = pino.destination({
    ...(options.logPath ? { dest: join(options.logPath, 'tandem.log'), mkdir: true } : { dest: 1 }),
    sync: true,
  })
  return pino(
    {
      level: options.level,
      base: { mongosyncID: options.mongosyncID },
      messageKey: 'message',
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
      formatters: { level: (label) => ({ level: label }) },
    },
    destination,
  )
}
