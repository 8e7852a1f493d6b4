import { parseCommandLine } from '../../src/cli/options.ts'

/** The options of an instance that this command line starts; throws when it does not. */
export function served(argv: string[], env: Record<string, string> = {}) {
  const parsed = parseCommandLine(argv, env)
  if (parsed.kind !== 'serve') throw new Error(JSON.stringify(parsed))
  return parsed.options
}

/** What a command line that is refused is answered; throws when it is not. */
export function refused(argv: string[], env: Record<string, string> = {}): string {
  const parsed = parseCommandLine(argv, env)
  if (parsed.kind !== 'print' || parsed.exitCode !== 2) throw new Error(JSON.stringify(parsed))
  return parsed.text
}
