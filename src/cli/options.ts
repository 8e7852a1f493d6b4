import { Command, CommanderError, Option } from 'commander'
import type { VerifyOptions } from '../comparison/run-verify.ts'
import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { addAccessOptions, readAccess } from './access.ts'
import {
  type ClientRequest,
  collectUrl,
  commitBody,
  defaultUrls,
  filterBody,
  limitsBody,
  resyncBody,
} from './client-options.ts'
import { addCompletionCommand } from './completion.ts'
import { exitCodes } from './exit-codes.ts'
import { failOnSeverities } from './findings.ts'
import {
  addServeOptions,
  type EffectiveSetting,
  effectiveSettings,
  readServeOptions,
  type ServeCommandOptions,
} from './serve-options.ts'
import type { Environment } from './settings.ts'
import { addStartOptions, startBody } from './start-options.ts'
import { renderTable } from './table.ts'
import { addVerifyCommand } from './verify-options.ts'
import type { WaitRequest } from './wait.ts'
import { addWaitCommands } from './wait-options.ts'
import type { WatchRequest } from './watch.ts'

/** The result of parsing a command line. Parsing has no effect; the caller prints, serves or sends. */
export type CommandLine =
  | { kind: 'serve'; options: ServeCommandOptions }
  | { kind: 'client'; request: ClientRequest }
  | { kind: 'verify'; options: VerifyOptions }
  | { kind: 'wait'; request: WaitRequest }
  | { kind: 'watch'; request: WatchRequest }
  | { kind: 'print'; stream: 'stdout' | 'stderr'; text: string; exitCode: number }

/**
 * Parses the arguments after the program's name. `env` may contain the connection strings, because argument lists are
 * visible to every user of the machine.
 */
export function parseCommandLine(argv: readonly string[], env: Environment, version = '0.0.0'): CommandLine {
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
    // commander quotes the invalid argument, which may be a connection string.
    const text = redactUris(failed ? err || `${error.message}\n` : out)
    return { kind: 'print', stream: failed ? 'stderr' : 'stdout', text, exitCode: failed ? exitCodes.invalid : 0 }
  }
  if (result === undefined) throw new Error('the command line was parsed but no action ran')
  return result
}

function buildProgram(version: string, env: Environment, found: (parsed: CommandLine) => void): Command {
  const program = new Command('tandem')
    .description(
      'Keeps two MongoDB clusters in sync, with the HTTP API of mongosync. Without a command: runs an instance.',
    )
    .version(version, '-v, --version', 'print the version')
    .helpOption('-h, --help', 'print this help')
    .helpCommand(false)
    // A command and the program may have options of the same name.
    .enablePositionalOptions()
  addServeOptions(program).action((_options, command: Command) =>
    found({ kind: 'serve', options: readServeOptions(command, env) }),
  )
  addConfigCommand(program, env, found)
  addClientCommands(program, env, found)
  addWaitCommands(program, env, found)
  addVerifyCommand(program, env, (options) => found({ kind: 'verify', options }))
  addCompletionCommand(program, (text) => found({ kind: 'print', stream: 'stdout', text, exitCode: 0 }))
  return program
}

function addConfigCommand(program: Command, env: Environment, found: (parsed: CommandLine) => void): void {
  const config = program
    .command('config')
    .description('print the effective value of each option of an instance, and where the value comes from')
    .helpOption('-h, --help', 'print this help')
    .option('--json', 'print JSON', false)
  addServeOptions(config).action((_options, command: Command) => {
    const settings = effectiveSettings(command, env)
    const text = command.getOptionValue('json') ? `${JSON.stringify(settings, null, 2)}\n` : settingsText(settings)
    found({ kind: 'print', stream: 'stdout', text, exitCode: 0 })
  })
}

function settingsText(settings: readonly EffectiveSetting[]): string {
  const columns = (['option', 'value', 'from'] as const).map((title) => ({ title, align: 'left' as const }))
  const rows = settings.map(({ name, value, origin }) => [
    name,
    value === null ? '-' : printable(String(value)),
    origin,
  ])
  return `${renderTable(columns, rows, Number.POSITIVE_INFINITY).join('\n')}\n`
}

function addClientCommands(program: Command, env: Environment, found: (parsed: CommandLine) => void): void {
  const client = (name: ClientRequest['command'], description: string) => {
    const command = addAccessOptions(program.command(name))
      .description(description)
      .helpOption('-h, --help', 'print this help')
      .option(
        '--url <url>',
        'address of an instance; repeat the option to send to several at the same time',
        collectUrl,
      )
      .option('--json', 'print JSON even on a terminal; one line for each of several instances')
    if (name === 'mismatches' || name === 'audit') return command
    return command.addOption(
      new Option('--table', 'print one table also without a terminal, and for one instance').conflicts('json'),
    )
  }

  for (const [name, description] of [
    ['start', 'begin a sync'],
    ['check', 'check whether start with the same options would be refused; changes nothing'],
  ] as const) {
    const command = addStartOptions(client(name, description))
    if (name === 'check')
      command.addOption(
        new Option('--fail-on <severity>', 'the exit code is 1 if there is a finding of this severity or a higher one')
          .choices(failOnSeverities)
          .default('error'),
      )
    command.action((options) => {
      const body = startBody(options)
      if (typeof body === 'string') return command.error(`error: ${body}`)
      const { failOn } = options
      found({
        kind: 'client',
        request: { command: name, ...clientOptions(command, env), body, ...(failOn && { failOn }) },
      })
    })
  }
  client('limit', 'change the limits on bulk work at once; they apply until they are changed again')
    .option(
      '--bytesPerSecond <number>',
      'bytes of documents copied, or read for the first verification, each second; none: no limit',
    )
    .option('--readConcurrency <number>', 'ranges of documents read at a time; none: --loadLevel decides')
    .option('--writeConcurrency <number>', 'batches of the copy written at a time; none: --loadLevel decides')
    .action((options, command: Command) =>
      found({
        kind: 'client',
        request: { command: 'limit', ...clientOptions(command, env), body: { inline: limitsBody(options) } },
      }),
    )
  client('commit', 'end the sync: hand over to the destination')
    .option(
      '--dry-run',
      'rehearse the commit: perform all steps up to the verdict, then continue as before; progress has the result',
    )
    .option('--max-seconds <number>', 'abort if canWrite is not reached within this many seconds')
    .action((options, command: Command) =>
      found({
        kind: 'client',
        request: { command: 'commit', ...clientOptions(command, env), body: { inline: commitBody(options) } },
      }),
    )
  client('resync', 'compare collections with the source again and write what differs; all instances take part')
    .requiredOption('--namespace <db.collection...>', 'a collection; may be repeated')
    .action((options, command: Command) =>
      found({
        kind: 'client',
        request: { command: 'resync', ...clientOptions(command, env), body: { inline: resyncBody(options) } },
      }),
    )
  client('filter', 'replace the filter of the sync: what is newly included is made equal to the source')
    .option('--includeNamespaces <json>', 'only these databases and collections are synced, as in the body of start')
    .option('--excludeNamespaces <json>', 'these databases and collections are left out')
    .option('--dropExcluded', 'drop on the destination what is newly excluded; otherwise it stays there')
    .option('--body <json>', 'the whole request body as JSON, or @file to read it from a file')
    .action((options, command: Command) => {
      const body = filterBody(options)
      if (typeof body === 'string') command.error(`error: ${body}`)
      else found({ kind: 'client', request: { command: 'filter', ...clientOptions(command, env), body } })
    })
  client(
    'collections',
    'print the progress of each collection: first those with mismatches, then those with the most work left',
  )
    .option('--limit <number>', 'rows to show, at most 200; 100 by default')
    .option('--after <number>', 'rows to skip')
    .action((options: { limit?: string; after?: string }, command: Command) => {
      const { limit, after } = options
      const query = { ...(limit !== undefined && { limit }), ...(after !== undefined && { after }) }
      const request = { command: 'collections' as const, ...clientOptions(command, env), body: { inline: {} }, query }
      found({ kind: 'client', request })
    })
  for (const [name, description] of [
    ['progress', 'print the status of the sync'],
    ['instances', 'print the status of all instances of the sync, and their totals'],
    ['limits', 'print the limits on bulk work'],
    ['pause', 'pause the sync'],
    ['resume', 'resume a paused sync, or a failed one after its cause is fixed'],
    ['abort', 'abort a commit before canWrite; the sync continues as before'],
    ['reverse', 'reverse the direction of a committed reversible sync'],
    ['mismatches', 'print the differences that a failed verification found'],
    ['audit', 'print the audit trail: who sent which command, and its outcome'],
    ['repair', 'make the documents that a failed verification named equal to the source; then send resume'],
  ] as const) {
    client(name, description).action((_options, command: Command) =>
      found({ kind: 'client', request: { command: name, ...clientOptions(command, env), body: { inline: {} } } }),
    )
  }
}

/** Options that all client commands share: addresses, access, and form of the answers. */
function clientOptions(command: Command, env: Environment): Pick<ClientRequest, 'urls' | 'access' | 'form'> {
  const { url, table, json } = command.opts<{ url?: string[]; table?: boolean; json?: boolean }>()
  const urls = url ?? defaultUrls
  const access = readAccess(command, urls, env)
  const form = table ? 'table' : json ? 'json' : null
  return { urls, ...(access && { access }), ...(form && { form }) }
}
