import { writeSync } from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import type { Journal } from '../domain/journal.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { journalOf } from './journal.ts'
import { prettyLine } from './log-line.ts'
import type { LogOptions } from './log-options.ts'
import { LineWriter, LogFile } from './log-writer.ts'

/** Properties of standard output, which is used when there is no log file. */
export interface LogTerminal {
  isTerminal: boolean
  inColour: boolean
}

export interface OpenLog {
  journal: Journal
  /** For SIGHUP: continues in the file that now has the configured name, after another process has rotated the log. */
  reopen(): void
  /** For SIGUSR1: rotates the file and continues in a new one. Does nothing without a file. */
  rotate(): void
}

/**
 * Writes JSON lines with mongosync's field names: `level` in lower case, `time` as RFC 3339, `mongosyncID`, `message`.
 * They never contain a document or the credentials of a connection string. Without a log file, a terminal shows the
 * lines in a readable form instead of JSON. Throws when the log file cannot be opened. When a later write fails, its
 * line is lost and tandem continues.
 */
export function createLog(options: LogOptions & { mongosyncID: string }, terminal: LogTerminal): OpenLog {
  const file = openFile(options)
  const output = file ?? new LineWriter(1)
  let lost = 0
  const write = (json: string): void => {
    try {
      output.write(file === null && terminal.isTerminal ? prettyLine(json, terminal.inColour) : json)
    } catch (error) {
      lost += 1
      if (lost === 1) reportOutage(error)
      return
    }
    if (lost === 0) return
    const lines = lost
    lost = 0
    journal('log lines lost', { lines })
  }
  const log = pino(
    {
      level: options.logLevel,
      base: { mongosyncID: options.mongosyncID },
      messageKey: 'message',
      timestamp: () => `,"time":"${inMicroseconds(new Date())}"`,
      formatters: {
        level: (label) => ({ level: label }),
        log: (fields) => redacted(fields) as Record<string, unknown>,
      },
    },
    { write },
  )
  const journal = journalOf(log)
  return { journal, reopen: () => file?.reopen(), rotate: () => file?.rotate() }
}

/** RFC 3339 with six digits, as in mongosync's log. Programs that read mongosync's log reject any other number. */
function inMicroseconds(time: Date): string {
  return time.toISOString().replace('Z', '000Z')
}

function openFile({ logPath, logMaxMB, logFiles }: LogOptions): LogFile | null {
  if (logPath === null) return null
  const path = join(logPath, 'tandem.log')
  try {
    const bytesMax = logMaxMB === 0 ? Number.POSITIVE_INFINITY : logMaxMB * 1_000_000
    return new LogFile({ path, bytesMax, files: logFiles })
  } catch (error) {
    const { code } = error as NodeJS.ErrnoException
    throw new Error(`--logPath: cannot write ${path}: ${code}; give a directory that tandem's user may write to`)
  }
}

/** Called once per outage of the log. */
function reportOutage(error: unknown): void {
  try {
    writeSync(
      2,
      `tandem: the log cannot be written (${(error as NodeJS.ErrnoException).code}); tandem continues without it\n`,
    )
  } catch {
    // Standard error cannot be written either.
  }
}

/** Removes the credentials from every connection string in a log line. */
function redacted(value: unknown): unknown {
  if (typeof value === 'string') return redactUris(value)
  if (Array.isArray(value)) return value.map(redacted)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, redacted(field)]))
}
