import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { type Command, InvalidArgumentError, type Option } from 'commander'
import { distance } from 'fastest-levenshtein'
import { redactUri } from '../domain/uri-rules.ts'
import { openFileProblem } from './secret-file.ts'

/**
 * Reads the options of an instance. An option has the same name on the command line (`--loadLevel 4`), in the environment
 * (`TANDEM_LOAD_LEVEL=4`), and in the YAML file of `--config` (`loadLevel: 4`). The first place in this order that sets
 * the option takes precedence. If none does, the default applies.
 */

export type Environment = Readonly<Record<string, string | undefined>>
export type Origin = 'command line' | 'environment' | 'file' | 'default'

/** Maximum edit distance between a misspelt name and the right one. */
const nearestMax = 3

const otherOptions = new Set(['config', 'help', 'json', 'version'])

/** The variable of an option: `loadLevel` is `TANDEM_LOAD_LEVEL`, `redisTlsCAFile` is `TANDEM_REDIS_TLS_CA_FILE`. */
export function variableOf(name: string): string {
  return `TANDEM_${name.replace(/([a-z])(?=[A-Z])|([A-Z])(?=[A-Z][a-z])/g, '$1$2_').toUpperCase()}`
}

export function addConfigOption(command: Command): Command {
  return command.option('--config <file>', 'YAML file with any of these options by name (or TANDEM_CONFIG)')
}

/** Known variables besides the options of an instance: `TANDEM_CONFIG` and the variables of the client commands. */
const otherVariables = ['TANDEM_CONFIG', 'TANDEM_TOKEN', 'TANDEM_TOKEN_FILE', 'TANDEM_TLS_CA_FILE']

/**
 * Kubernetes sets variables in each container for every service of its namespace. The names of the variables begin with
 * that of the service, so a service called `tandem` creates these
 * (https://kubernetes.io/docs/tutorials/services/connect-applications-service/#environment-variables).
 */
const kubernetesVariables =
  /_SERVICE_HOST$|_SERVICE_PORT(?:_[A-Z0-9_]+)?$|_PORT(?:_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))?)?$/

/** Refuses unknown variables: a misspelt one would silently leave its option at the default. */
function refuseUnknownVariables(command: Command, env: Environment, options: readonly Option[]): void {
  const known = [...options.map((option) => variableOf(option.attributeName())), ...otherVariables]
  const unknown = Object.keys(env).filter(
    (name) => name.startsWith('TANDEM_') && !known.includes(name) && !kubernetesVariables.test(name),
  )
  if (unknown.length === 0) return
  // Print only the name: the value may be a secret.
  command.error(
    unknown.map((name) => `error: environment variable ${name} is not an option${suggestion(name, known)}`).join('\n'),
  )
}

/**
 * Sets the options that the command line does not contain. Returns the origin of each option. If a value is invalid,
 * ends the parsing with an error that names the option and its origin.
 */
export function applySettings(command: Command, env: Environment): Map<string, Origin> {
  const options = command.options.filter((one) => !otherOptions.has(one.attributeName()))
  refuseUnknownVariables(command, env, options)
  const path = (command.getOptionValue('config') as string | undefined) ?? env['TANDEM_CONFIG']
  const file = path ? readFile(command, path, options) : new Map<string, unknown>()
  const origins = new Map<string, Origin>()
  for (const option of options) {
    const name = option.attributeName()
    const variable = env[variableOf(name)]
    if (command.getOptionValueSource(name) === 'cli') origins.set(name, 'command line')
    else if (variable !== undefined && variable !== '') {
      set(option, variable, 'env', `environment variable ${variableOf(name)}`)
      origins.set(name, 'environment')
    } else if (file.has(name)) {
      set(option, file.get(name), 'config', `${path}: ${name}`)
      origins.set(name, 'file')
    } else origins.set(name, 'default')
  }
  return origins

  function set(option: Option, given: unknown, source: string, where: string): void {
    try {
      command.setOptionValueWithSource(option.attributeName(), toValue(option, given), source)
    } catch (error) {
      if (!(error instanceof InvalidArgumentError)) throw error
      command.error(`error: ${where}: ${error.message}`)
    }
  }
}

function toValue(option: Option, given: unknown): unknown {
  if (typeof given === 'object' && given !== null && option.variadic) return given
  if (typeof given === 'object') {
    throw new InvalidArgumentError('It must be a single value.')
  }
  const text = String(given)
  if (option.isBoolean()) {
    if (text === 'true' || text === 'false') return text === 'true'
    throw new InvalidArgumentError('It must be true or false.')
  }
  return option.parseArg ? option.parseArg(text, undefined) : text
}

function readFile(command: Command, path: string, options: readonly Option[]): Map<string, unknown> {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    return command.error(`error: --config: cannot read ${path}: ${(error as NodeJS.ErrnoException).code}`)
  }
  // The YAML parser is loaded only here, because most command lines have no file. Loading it at every start would take
  // a third of the run time of `tandem --version`.
  const { LineCounter, parseDocument }: typeof import('yaml') = createRequire(import.meta.url)('yaml')
  // Errors must not quote the lines, which may contain passwords.
  const lineCounter = new LineCounter()
  const document = parseDocument(text, { prettyErrors: false, lineCounter })
  const [problem] = document.errors
  if (problem) {
    const { line, col } = lineCounter.linePos(problem.pos[0])
    command.error(`error: ${path}: not valid YAML (${problem.code} at line ${line}, column ${col})`)
  }
  const content: unknown = document.toJS() ?? {}
  if (typeof content !== 'object' || content === null || Array.isArray(content)) {
    return command.error(`error: ${path}: must hold options by name, such as "loadLevel: 4"`)
  }
  const names = options.map((one) => one.attributeName())
  const unknown = Object.keys(content).filter((name) => !names.includes(name))
  if (unknown.length > 0) {
    command.error(
      unknown
        .map((name) => `error: ${path}: ${JSON.stringify(name)} is not an option${suggestion(name, names)}`)
        .join('\n'),
    )
  }
  const values = new Map<string, unknown>(Object.entries(content))
  const open = holdsSecret(values) ? openFileProblem(path) : null
  if (open !== null) command.error(`error: --config: ${open}`)
  return values
}

/** True if the file contains a token, or a connection string with a user, a password or a secret option. */
function holdsSecret(values: ReadonlyMap<string, unknown>): boolean {
  return ['token', 'cluster0', 'cluster1', 'redis'].some((name) => {
    const value = String(values.get(name) ?? '')
    return value !== '' && (name === 'token' || redactUri(value) !== value)
  })
}

function suggestion(name: string, names: readonly string[]): string {
  const nearest = nearestName(name, names)
  return nearest === null ? `; the options are ${names.join(', ')}` : `; did you mean ${nearest}?`
}

/** Returns the known name that is most like a misspelt one, or null if none is similar. */
export function nearestName(name: string, names: readonly string[]): string | null {
  const ranked = names
    .map((one) => ({ one, far: distance(one.toLowerCase(), name.toLowerCase()) }))
    .sort((a, b) => a.far - b.far)
  const [nearest] = ranked
  return nearest && nearest.far <= nearestMax ? nearest.one : null
}
