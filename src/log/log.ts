import { writeSync } from 'node:fs'
import { join } from 'node:path'
import { pino } from 'pino'
import type { Journal } from '../domain/journal.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { journalOf } from './journal.ts'
import { prettyLine } from './log-line.ts'
import type { LogOptions } from './log-options.ts'
import { LineWriter, LogFile } from './log-writer.ts'

/** Standard output, where there is no file for the log. */
export interface LogTerminal {
  isTerminal: boolean
  inColour: boolean
}

export interface OpenLog {
  journal: Journal
  /** For SIGHUP: goes on in the file of that name, after somebody has put the present one aside. */
  reopen(): void
  /** For SIGUSR1: puts the present file aside itself and goes on in a new one. Nothing without a file. */
  rotate(): void
}

/**
 * JSON lines with mongosync's field names: `level` in lower case, `time` as RFC 3339, `mongosyncID`, `message`. Never a
 * connection string, never a document. Throws when the log file cannot be opened; from then on a log that cannot be
 * written costs its lines and nothing else.
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
      if (lost === 1) complain(error)
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
      timestamp: () => `,"time":"${new Date().toISOString()}"`,
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

/** Once, until lines can be written again. */
function complain(error: unknown): void {
  try {
    writeSync(2, `tandem: the log cannot be written (${(error as NodeJS.ErrnoException).code}); it goes on without\n`)
  } catch {
    // Then nobody can be told.
  }
}

/** Whatever a line tells of, no connection string in it keeps its secrets. */
function redacted(value: unknown): unknown {
  if (typeof value === 'string') return redactUris(value)
  if (Array.isArray(value)) return value.map(redacted)
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(Object.entries(value).map(([name, field]) => [name, redacted(field)]))
}
