import { type Command, InvalidArgumentError } from 'commander'
import { type LogLevel, type LogOptions, logLevels } from '../log/log-options.ts'
import { integerBetween, nonEmpty } from './values.ts'

export function addLogOptions(command: Command): Command {
  return command
    .option('--logPath <directory>', 'write the log into this directory instead of standard output', nonEmpty)
    .option(
      '--logMaxMB <number>',
      'rotate tandem.log before it exceeds this many megabytes; 0: never',
      integerBetween(0, 1_000_000),
      100,
    )
    .option('--logFiles <number>', 'log files to keep, including tandem.log', integerBetween(1, 1_000), 10)
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
