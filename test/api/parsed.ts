import { parseCommandLine } from '../../src/cli/options.ts'

/** The options of the instance that this command line starts. Throws when it starts none. */
export function served(argv: string[], env: Record<string, string> = {}) {
  const parsed = parseCommandLine(argv, env)
  if (parsed.kind !== 'serve') throw new Error(JSON.stringify(parsed))
  return parsed.options
}

/** The error text of a command line that is refused. Throws when it is accepted. */
export function refused(argv: string[], env: Record<string, string> = {}): string {
  const parsed = parseCommandLine(argv, env)
  if (parsed.kind !== 'print' || parsed.exitCode !== 2) throw new Error(JSON.stringify(parsed))
  return parsed.text
}
