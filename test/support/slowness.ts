import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

/** What starting and ending an empty Node.js process takes at most on an idle machine of the slowest kind that runs these tests. */
const idleMS = 200

/**
 * How many times slower than when idle this machine is just now; at least 1. For promises of seconds ("goes on within 5 s"), which
 * say nothing of a machine that other work keeps waiting.
 */
export async function slowness(): Promise<number> {
  const since = performance.now()
  await promisify(execFile)(process.execPath, ['--eval', ''])
  return Math.max(1, (performance.now() - since) / idleMS)
}
