import { type Command, InvalidArgumentError } from 'commander'
import { integerBetween, nonEmpty } from './values.ts'

/** Names of the log levels as pino has them; mongosync's PANIC is our fatal. */
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'

export interface LogOptions {
  /** Directory for the log; null means standard output. */
  logPath: string | null
  /** Megabytes (of a million bytes) after which the file is put aside; 0: never. */
  logMaxMB: number
  /** How many files are kept, the present one among them. */
  logFiles: number
  logLevel: LogLevel
}

export const logLevels: Record<string, LogLevel> = {
  TRACE: 'trace',
  DEBUG: 'debug',
  INFO: 'info',
  WARN: 'warn',
  ERROR: 'error',
  FATAL: 'fatal',
  PANIC: 'fatal',
}

export function addLogOptions(command: Command): Command {
  return command
    .option('--logPath <directory>', 'write the log into this directory instead of standard output', nonEmpty)
    .option(
      '--logMaxMB <number>',
      'put tandem.log aside before it has more megabytes; 0: never',
      integerBetween(0, 1_000_000),
      100,
    )
    .option('--logFiles <number>', 'log files to keep, tandem.log among them', integerBetween(1, 1_000), 10)
    .option('--verbosity <level>', `log level: ${Object.keys(logLevels).join(', ')}`, logLevel, 'info')
}

export function readLogOptions(command: Command): LogOptions {
  const { logPath = null, logMaxMB, logFiles, verbosity } = command.opts()
  return { logPath, logMaxMB, logFiles, logLevel: verbosity }
}

function logLevel(text: string): LogLevel {
  const level = logLevels[text.toUpperCase()]
  if (level === undefined) throw new InvalidArgumentError(`It must be one of ${Object.keys(logLevels).join(', ')}.`)
  return level
}
