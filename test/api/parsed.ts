import { parseCommandLine } from '../../src/cli/options.ts'

/** Returns the options of the instance that this command line starts. Throws if the command line starts no instance. */
export function served(argv: string[], env: Record<string, string> = {}) {
  const parsed = parseCommandLine(argv, env)
  if (parsed.kind !== 'serve') throw new Error(JSON.stringify(parsed))
  return parsed.options
}

/** Returns the error text with which this command line is refused. Throws if the command line is accepted. */
export function refused(argv: string[], env: Record<string, string> = {}): string {
  const parsed = parseCommandLine(argv, env)
  if (parsed.kind !== 'print' || parsed.exitCode !== 2) throw new Error(JSON.stringify(parsed))
  return parsed.text
}
