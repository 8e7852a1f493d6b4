import { Argument, Command, CommanderError } from 'commander'
import type { CleanOptions } from '../clean/run-clean.ts'
import type { VerifyOptions } from '../comparison/run-verify.ts'
import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import type { InventoryOptions } from '../inventory/run-inventory.ts'
import type { RehearseOptions } from '../rehearse/run-rehearse.ts'
import { addCleanCommand } from './clean-options.ts'
import { addClientCommands } from './client-commands.ts'
import type { ClientRequest } from './client-options.ts'
import { addCompletionCommand } from './completion.ts'
import { exitCodes } from './exit-codes.ts'
import { addHealthCommand, type HealthRequest } from './health.ts'
import { addInventoryCommand } from './inventory-options.ts'
import { addRehearseCommand } from './rehearse-options.ts'
import {
  addServeOptions,
  type EffectiveSetting,
  effectiveSettings,
  readServeOptions,
  type ServeCommandOptions,
} from './serve-options.ts'
import { type Environment, nearestName } from './settings.ts'
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
  | { kind: 'inventory'; options: InventoryOptions }
  | { kind: 'clean'; options: CleanOptions }
  | { kind: 'health'; request: HealthRequest }
  | { kind: 'rehearse'; options: RehearseOptions }
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
    refuseUnknownCommand(program, argv)
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

/** Without this, commander would say that there are too many arguments, or that an option of the command is unknown. */
function refuseUnknownCommand(program: Command, [first]: readonly string[]): void {
  const names = program.commands.map((one) => one.name())
  if (first === undefined || first.startsWith('-') || names.includes(first)) return
  const nearest = nearestName(first, names)
  const hint = nearest === null ? 'tandem help lists the commands' : `did you mean ${nearest}?`
  program.error(`error: there is no command '${printable(first)}'; ${hint}`)
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
  addClientCommands(program, env, (request) => found({ kind: 'client', request }))
  addWaitCommands(program, env, found)
  addVerifyCommand(program, env, (options) => found({ kind: 'verify', options }))
  addInventoryCommand(program, env, (options) => found({ kind: 'inventory', options }))
  addCleanCommand(program, env, (options) => found({ kind: 'clean', options }))
  addHealthCommand(program, env, (request) => found({ kind: 'health', request }))
  addRehearseCommand(program, env, (options) => found({ kind: 'rehearse', options }))
  addCompletionCommand(program, (text) => found({ kind: 'print', stream: 'stdout', text, exitCode: 0 }))
  addHelpCommand(program, (text) => found({ kind: 'print', stream: 'stdout', text, exitCode: 0 }))
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

/**
 * Adds `tandem help [command]`, which prints the text of `--help`. Commander's own help command is not used, because the
 * completion script would not contain it.
 */
function addHelpCommand(program: Command, found: (text: string) => void): void {
  const commands = [...program.commands.map((one) => one.name()), 'help']
  program
    .command('help')
    .description('print the help for tandem, or for a command')
    .helpOption('-h, --help', 'print this help')
    .addArgument(new Argument('[command]', 'which command').choices(commands))
    .action((name?: string) =>
      found((program.commands.find((one) => one.name() === name) ?? program).helpInformation()),
    )
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
