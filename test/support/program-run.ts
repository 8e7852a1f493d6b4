import type { Readable } from 'node:stream'

/** A run of the program, in a process of its own or in one that runs others later (tandem-hosts.ts). */
export interface ProgramRun {
  /** The process. */
  pid: number
  /** Resolves when the program has ended and its output is complete: the exit code, or null if a signal killed it. */
  ended: Promise<number | null>
  isRunning(): boolean
  /** Sends the signal and resolves when the program has ended. */
  kill(signal: NodeJS.Signals): Promise<void>
}

/**
 * Returns the environment without the tests' own variables (TANDEM_MONGO_BIN and others), which an instance would reject
 * as misspelt.
 */
export function environment(): NodeJS.ProcessEnv {
  return Object.fromEntries(Object.entries(process.env).filter(([name]) => !name.startsWith('TANDEM_')))
}

/** Calls the function for each line that the stream contains, also for a last one without a line break. */
export function linesOf(stream: Readable | null, onLine: (line: string) => void): void {
  let rest = ''
  stream?.setEncoding('utf8').on('data', (chunk: string) => {
    const parts = (rest + chunk).split('\n')
    rest = parts.pop() ?? ''
    for (const part of parts) onLine(part)
  })
  stream?.once('close', () => {
    if (rest !== '') onLine(rest)
  })
}
