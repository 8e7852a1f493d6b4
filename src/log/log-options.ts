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
