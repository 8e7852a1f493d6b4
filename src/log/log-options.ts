/** pino's names of the log levels. mongosync's PANIC corresponds to `fatal`. */
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'

export interface LogOptions {
  /** Directory of the log. Null means standard output. */
  logPath: string | null
  /** Size in megabytes (10^6 bytes) at which the file is rotated. 0: never. */
  logMaxMB: number
  /** How many files are kept, including the current one. */
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
