import { Command, CommanderError, InvalidArgumentError } from 'commander'
import type { VerifyOptions } from './audit/run-verify.ts'
import { type ClientRequest, collectUrl, startBody } from './cli-client-options.ts'
import { addClusterOptions, readClusters } from './cli-cluster-options.ts'
import { addVerifyCommand } from './cli-verify-options.ts'
import { redactUris } from './domain/uri-rules.ts'

/** What a command line asks for. Reading it has no effect: whoever called prints, serves or sends. */
export type CommandLine =
  | { kind: 'serve'; options: ServeCommandOptions }
  | { kind: 'client'; request: ClientRequest }
  | { kind: 'verify'; options: VerifyOptions }
  | { kind: 'print'; stream: 'stdout' | 'stderr'; text: string; exitCode: number }

/** Names of the log levels as pino has them; mongosync's PANIC is our fatal. */
export type LogLevel = 'trace' | 'debug' | 'info' | 'warn' | 'error' | 'fatal'

export interface ServeCommandOptions {
  cluster0: string
  cluster1: string
  port: number
  id: string
  loadLevel: 1 | 2 | 3 | 4
  /** Directory for the log; null means standard output. */
  logPath: string | null
  logLevel: LogLevel
  exitOnFailure: boolean
  /** Sentences to print: options that were accepted and ignored. */
  notices: string[]
}

/** mongosync names an instance so when it is given no id. */
const defaultId = 'coordinator'

/** mongosync's options that have no meaning here: a command line written for it must still start. */
const ignoredOptions = [
  { flags: '--acceptDisclaimer [boolean]', name: 'acceptDisclaimer', why: 'tandem has no disclaimer' },
  { flags: '--disableTelemetry [boolean]', name: 'disableTelemetry', why: 'tandem sends no telemetry' },
  { flags: '--metricsLoggingFilepath <path>', name: 'metricsLoggingFilepath', why: 'tandem writes no metrics file' },
  { flags: '--disableMetricsLogging [boolean]', name: 'disableMetricsLogging', why: 'tandem writes no metrics file' },
]

const logLevels: Record<string, LogLevel> = {
  TRACE: 'trace',
  DEBUG: 'debug',
  INFO: 'info',
  WARN: 'warn',
  ERROR: 'error',
  FATAL: 'fatal',
  PANIC: 'fatal',
}

/** Reads the arguments after the program's name. `env` may hold the connection strings, which argument lists show to every user of the machine. */
export function parseCommandLine(
  argv: readonly string[],
  env: Readonly<Record<string, string | undefined>>,
  version = '0.0.0',
): CommandLine {
  let result: CommandLine | undefined
  let out = ''
  let err = ''
  const program = buildProgram(version, env, (parsed) => {
    result = parsed
  })
  for (const command of [program, ...program.commands]) {
    command.exitOverride().configureOutput({
      writeOut: (text) => {
        out += text
      },
      writeErr: (text) => {
        err += text
      },
    })
  }
  try {
    program.parse([...argv], { from: 'user' })
  } catch (error) {
    if (!(error instanceof CommanderError)) throw error
    const failed = error.exitCode !== 0
    // commander quotes the argument it stumbled over, and that may be a connection string.
    const text = redactUris(failed ? err || `${error.message}\n` : out)
    return { kind: 'print', stream: failed ? 'stderr' : 'stdout', text, exitCode: failed ? 2 : 0 }
  }
  if (result === undefined) throw new Error('the command line was parsed but no action ran')
  return result
}

function buildProgram(
  version: string,
  env: Readonly<Record<string, string | undefined>>,
  found: (parsed: CommandLine) => void,
): Command {
  const program = new Command('tandem')
    .description(
      'Keeps two MongoDB clusters in step, speaking the HTTP API of mongosync. Without a command: runs an instance.',
    )
    .version(version, '-v, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand(false)
    // A command's own options are its own, also where the program has one of the same name.
    .enablePositionalOptions()
  addClusterOptions(program)
    .option(
      '--port <number>',
      'port of the HTTP API on 127.0.0.1; 0 takes a free one',
      integerBetween(0, 65_535),
      27_182,
    )
    .option('--id <id>', 'name of this instance; needed when several share the work', nonEmpty, defaultId)
    .option('--loadLevel <level>', 'how hard to load the clusters, 1 to 4', integerBetween(1, 4), 3)
    .option('--logPath <directory>', 'write the log into this directory instead of standard output', nonEmpty)
    .option('--verbosity <level>', `log level: ${Object.keys(logLevels).join(', ')}`, logLevel, 'debug')
    .option(
      '--exitOnFailure',
      'exit when the sync fails, as mongosync does, instead of staying to answer progress',
      false,
    )
  for (const { flags, why } of ignoredOptions) program.option(flags, `accepted for mongosync and ignored: ${why}`)
  program.action((options) => {
    found({
      kind: 'serve',
      options: {
        ...readClusters(program, options, env),
        port: options.port,
        id: options.id,
        loadLevel: options.loadLevel,
        logPath: options.logPath ?? null,
        logLevel: options.verbosity,
        exitOnFailure: options.exitOnFailure,
        notices: ignoredOptions
          .filter(({ name }) => options[name] !== undefined)
          .map(({ name, why }) => `--${name} is ignored: ${why}`),
      },
    })
  })
  addClientCommands(program, found)
  addVerifyCommand(program, env, (options) => found({ kind: 'verify', options }))
  return program
}

function addClientCommands(program: Command, found: (parsed: CommandLine) => void): void {
  const client = (name: ClientRequest['command'], description: string) =>
    program
      .command(name)
      .description(description)
      .helpOption('-h, --help', 'print this help')
      .option('--url <url>', 'address of an instance; repeat it to send to several at the same time', collectUrl)

  client('start', 'begin a sync')
    .option('--source <cluster>', 'cluster0 or cluster1')
    .option('--destination <cluster>', 'the other one')
    .option('--buildIndexes <mode>', 'beforeDataCopy (default) or never')
    .option(
      '--enableUserWriteBlocking <mode>',
      'sourceAndDestination (or true), destinationOnly (default), none (or false)',
    )
    .option('--reversible', 'allow reversing after commit')
    .option('--no-verification', 'run without the embedded verifier')
    .option('--body <json>', 'the whole request body as JSON, or @file to read it from a file')
    .action((options, command: Command) => {
      const body = startBody(options)
      if (typeof body === 'string') command.error(`error: ${body}`)
      else found({ kind: 'client', request: { command: 'start', urls: urls(options), body } })
    })
  for (const [name, description] of [
    ['progress', 'print the status of the sync'],
    ['pause', 'pause the sync'],
    ['resume', 'resume a paused sync, or a failed one after its cause is mended'],
    ['commit', 'end the sync: hand over to the destination'],
    ['reverse', 'turn a committed reversible sync around'],
    ['mismatches', 'print what a failed verification found different'],
    ['repair', 'reconcile from the source what a failed verification named; then resume'],
  ] as const) {
    client(name, description).action((options) =>
      found({ kind: 'client', request: { command: name, urls: urls(options), body: { inline: {} } } }),
    )
  }
}

function urls(options: { url?: string[] }): string[] {
  return options.url ?? ['http://localhost:27182']
}

function integerBetween(lowest: number, highest: number) {
  return (text: string): number => {
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN
    if (value >= lowest && value <= highest) return value
    throw new InvalidArgumentError(`It must be an integer from ${lowest} to ${highest}.`)
  }
}

function nonEmpty(text: string): string {
  if (text.trim() === '') throw new InvalidArgumentError('It must not be empty.')
  return text
}

function logLevel(text: string): LogLevel {
  const level = logLevels[text.toUpperCase()]
  if (level === undefined) throw new InvalidArgumentError(`It must be one of ${Object.keys(logLevels).join(', ')}.`)
  return level
}
