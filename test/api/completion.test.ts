import { spawnSync } from 'node:child_process'
import { expect, test } from 'vitest'
import { parseCommandLine } from '../../src/cli/options.ts'

/** These tests run the completion script in a real shell, bash, and read what the script offers. */

const printed = (...args: string[]): string => {
  const parsed = parseCommandLine(args, {})
  if (parsed.kind !== 'print') throw new Error(JSON.stringify(parsed))
  return parsed.text
}
const has = (shell: string): boolean => spawnSync(shell, ['-c', 'exit 0']).status === 0
const script = printed('completion', 'bash')

/** Returns the completions that the script offers for each line. The cursor is at the end of the last word of the line. */
function offered(lines: readonly string[][]): string[][] {
  const queries = lines.map(
    (words) =>
      `COMP_WORDS=(tandem ${words.map((word) => `'${word}'`).join(' ')}); COMP_CWORD=${words.length}; _tandem; echo "\${COMPREPLY[*]}"`,
  )
  const { stdout, stderr, status } = spawnSync('bash', ['-u'], {
    input: `${script}\n${queries.join('\n')}`,
    encoding: 'utf8',
  })
  expect([stderr, status]).toEqual(['', 0])
  return stdout
    .split('\n')
    .slice(0, -1)
    .map((line) => line.split(' ').filter((word) => word !== ''))
}
const commandsIn = (help: string): string[] =>
  [...help.slice(help.indexOf('\nCommands:')).matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name as string)
const optionsIn = (help: string): string[] =>
  [...help.matchAll(/^ {2}(?:-\w, )?(--[\w-]+)/gm)].map(([, name]) => name as string)

test.runIf(has('bash'))('every command and option of the help is offered, also by its first letters', () => {
  const help = printed('--help')
  const commands = commandsIn(help)
  expect(commands).toContain('completion')
  const byCommand: [string[], string[]][] = [
    [[], optionsIn(help)],
    ...commands.map((name): [string[], string[]] => [[name], optionsIn(printed(name, '--help'))]),
  ]
  const [all = [], ...rest] = offered([[''], ...byCommand.map(([before]) => [...before, '-'])])
  expect(all).toEqual(expect.arrayContaining([...commands, ...optionsIn(help)]))
  for (const [at, [, options]] of byCommand.entries()) {
    expect(options.length).toBeGreaterThan(0)
    expect(rest[at]?.filter((word) => word.startsWith('--')).sort()).toEqual([...options].sort())
  }
  const names = byCommand.flatMap(([before, options]) => options.map((name) => [...before, name.slice(0, -1)]))
  for (const [at, words] of offered(names).entries()) {
    const prefix = names[at]?.at(-1) ?? ''
    expect(words.length).toBeGreaterThan(0)
    expect(words.every((word) => word.startsWith(prefix))).toBe(true)
  }
})

test.runIf(has('bash')).each<[string[], string[]]>([
  [['sta'], ['start']],
  [
    ['start', '--source', ''],
    ['cluster0', 'cluster1'],
  ],
  [['start', '--buildIndexes', 'n'], ['never']],
  [
    ['wait', '--until', 'can'],
    ['canCommit', 'canWrite'],
  ],
  [['--verbosity', 'DE'], ['DEBUG']],
  [
    ['--loadLevel', ''],
    ['1', '2', '3', '4'],
  ],
  [['completion', 'z'], ['zsh']],
  // The script offers nothing for files, because the shell completes them, or for values that only the user knows.
  [['--config', ''], []],
  [['progress', '--tokenFile', ''], []],
  [['start', '--url', ''], []],
  // The value of an option is followed by the next option.
  [['commit', '--url', 'http://a:1', '--tl'], ['--tlsCAFile']],
  // The name of an instance is not a command.
  [['--id', 'start', '--sour'], []],
])('after tandem %j the script offers %j', (words, expected) => {
  expect(offered([words])).toEqual([expected])
})

test.each(['zsh', 'fish'])(
  'the script for %s names every command and option, and that shell parses it where it is installed',
  (shell) => {
    const text = printed('completion', shell)
    const help = printed('--help')
    for (const command of commandsIn(help)) {
      expect(text).toContain(command)
      for (const option of optionsIn(printed(command, '--help'))) {
        expect(text).toContain(shell === 'fish' ? `-l ${option.slice(2)} ` : `'*${option}[`)
      }
    }
    if (has(shell))
      expect(spawnSync(shell, ['-n'], { input: text, encoding: 'utf8' })).toMatchObject({ status: 0, stderr: '' })
  },
)

test('an unknown shell is refused', () => {
  expect(parseCommandLine(['completion', 'tcsh'], {})).toMatchObject({ kind: 'print', stream: 'stderr', exitCode: 2 })
})
