import { Argument, type Command, type Option } from 'commander'
import { buildIndexesModes } from '../domain/build-indexes.ts'
import { timeSeriesModes } from '../domain/start-request.ts'
import { logLevels } from '../log/log-options.ts'

/**
 * `tandem completion SHELL`: prints a script that completes tandem's commands and options in the shell. It is
 * generated from their definitions.
 */

const shells = { bash: bashScript, zsh: zshScript, fish: fishScript }
export type Shell = keyof typeof shells

/** Values of options that the command line does not validate itself, or accepts in upper and lower case. */
const knownValues: Readonly<Record<string, readonly string[]>> = {
  '--source': ['cluster0', 'cluster1'],
  '--destination': ['cluster0', 'cluster1'],
  '--buildIndexes': buildIndexesModes,
  '--enableUserWriteBlocking': ['sourceAndDestination', 'destinationOnly', 'none'],
  '--timeseries': timeSeriesModes,
  '--loadLevel': ['1', '2', '3', '4'],
  '--verbosity': Object.keys(logLevels),
}
const filePlaceholders = ['<file>', '<directory>', '<path>']

interface Completed {
  /** '' is the program itself, which runs an instance. */
  name: string
  description: string
  /** Arguments of the command that are not options. */
  words: readonly string[]
  options: CompletedOption[]
}

interface CompletedOption {
  /** Names such as `--url`, and short ones. */
  names: string[]
  description: string
  /** The argument of the option: nothing, one of some values, a file, or any text. */
  takes: 'nothing' | 'text' | 'file' | readonly string[]
}

export function addCompletionCommand(program: Command, found: (script: string) => void): void {
  program
    .command('completion')
    .description('print a script that makes a shell complete commands and options')
    .helpOption('-h, --help', 'print this help')
    .addArgument(new Argument('<shell>', 'which shell').choices(Object.keys(shells)))
    .action((shell: Shell) => found(completionScript(program, shell)))
}

export function completionScript(program: Command, shell: Shell): string {
  const commands = completed(program)
  return `# Completion of tandem's commands and options for ${shell}, made by: tandem completion ${shell}\n${shells[shell](commands)}`
}

/** All commands; the program itself comes first. */
export function completed(program: Command): Completed[] {
  return [program, ...program.commands].map((command) => ({
    name: command === program ? '' : command.name(),
    description: command.description(),
    words:
      command === program
        ? program.commands.map((one) => one.name())
        : command.registeredArguments.flatMap(({ argChoices }) => argChoices ?? []),
    options: command.createHelp().visibleOptions(command).map(completedOption),
  }))
}

function completedOption({ short, long, flags, description, argChoices }: Option): CompletedOption {
  const names = [long, short].flatMap((name) => (name ? [name] : []))
  const values = argChoices ?? knownValues[long ?? '']
  const takesValue = flags.includes('<')
  const isFile = filePlaceholders.some((placeholder) => flags.endsWith(placeholder))
  return { names, description, takes: !takesValue ? 'nothing' : (values ?? (isFile ? 'file' : 'text')) }
}

const isList = (takes: CompletedOption['takes']): takes is readonly string[] => typeof takes !== 'string'

/** A script for bash 3.2 and later. Where it has no completions, the shell completes file names. */
function bashScript(commands: readonly Completed[]): string {
  const valueCases = commands.flatMap(({ name, options }) =>
    options
      .filter(({ takes }) => takes !== 'nothing')
      .map(({ names, takes }) => {
        const pattern = names.map((one) => `${name}:${one}`).join(' | ')
        return `    ${pattern}) ${isList(takes) ? `words='${takes.join(' ')}'` : 'return'} ;;`
      }),
  )
  const wordCases = commands.map(({ name, words, options }) => {
    const all = [...words, ...options.flatMap(({ names }) => names)]
    return `        ${name === '' ? "''" : name}) words='${all.join(' ')}' ;;`
  })
  const names = commands.flatMap(({ name }) => (name === '' ? [] : [name]))
  return `_tandem() {
  local current=\${COMP_WORDS[COMP_CWORD]} previous=\${COMP_WORDS[COMP_CWORD-1]} command='' words=''
  COMPREPLY=()
  if ((COMP_CWORD > 1)); then
    case "\${COMP_WORDS[1]}" in
      ${names.join(' | ')}) command=\${COMP_WORDS[1]} ;;
    esac
  fi
  case "$command:$previous" in
${valueCases.join('\n')}
    *)
      case "$command" in
${wordCases.join('\n')}
      esac
      ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}
complete -o default -F _tandem tandem
`
}

function zshScript(commands: readonly Completed[]): string {
  const [program, ...others] = commands
  const quoted = (text: string): string => text.replaceAll("'", "'\\''")
  const spec = ({ names, description, takes }: CompletedOption): string[] => {
    const value =
      takes === 'nothing' ? '' : `: :${isList(takes) ? `(${takes.join(' ')})` : takes === 'file' ? '_files' : ''}`
    const label = quoted(description.replaceAll(/[[\]\\]/g, '\\$&'))
    return names.map((name) => `'*${name}[${label}]${value}'`)
  }
  const specs = ({ words, options }: Completed): string =>
    [...options.flatMap(spec), ...(words.length > 0 ? [`'1: :(${words.join(' ')})'`] : [])].join(' \\\n        ')
  const described = others.map(({ name, description }) => `    '${name}:${quoted(description.replaceAll(':', '\\:'))}'`)
  const cases = others.map((one) => `    ${one.name})\n      _arguments ${specs(one)}\n      ;;`)
  return `#compdef tandem
_tandem() {
  local -a commands
  commands=(
${described.join('\n')}
  )
  local command=\${words[2]}
  if ((CURRENT == 2)); then
    _describe command commands
  elif ((\${#\${(M)commands:#$command:*}})); then
    shift words
    ((CURRENT--))
  else
    command=''
  fi
  case "$command" in
${cases.join('\n')}
    *)
      _arguments ${specs({ ...(program as Completed), words: [] })}
      ;;
  esac
}
compdef _tandem tandem
`
}

function fishScript(commands: readonly Completed[]): string {
  const quoted = (text: string): string => `'${text.replaceAll(/['\\]/g, '\\$&')}'`
  const names = commands.flatMap(({ name }) => (name === '' ? [] : [name]))
  const condition = (name: string): string =>
    quoted(name === '' ? `not __fish_seen_subcommand_from ${names.join(' ')}` : `__fish_seen_subcommand_from ${name}`)
  const lines = commands.flatMap(({ name, words, options }) => [
    ...words.map((word) => {
      const text = commands.find((one) => name === '' && one.name === word)?.description ?? ''
      return `complete -c tandem -n ${condition(name)} -f -a ${word} -d ${quoted(text)}`
    }),
    ...options.map(({ names: [long = '', short], description, takes }) => {
      const value =
        takes === 'nothing' ? '' : isList(takes) ? ` -x -a '${takes.join(' ')}'` : takes === 'file' ? ' -r -F' : ' -x'
      const letter = short ? ` -s ${short.slice(1)}` : ''
      return `complete -c tandem -n ${condition(name)} -l ${long.slice(2)}${letter}${value} -d ${quoted(description)}`
    }),
  ])
  return `complete -c tandem -f\n${lines.join('\n')}\n`
}
