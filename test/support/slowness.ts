import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

/** Milliseconds that an empty Node.js process takes at most on an idle machine of the slowest kind that runs these tests. */
const idleMS = 200

/**
 * Returns how many times slower than when idle this machine currently is; at least 1. Tests of time limits (such as "continues
 * within 5 s") multiply their limit by it, because the limits do not apply to a machine that is busy with other work.
 */
export async function slowness(): Promise<number> {
  const since = performance.now()
  await promisify(execFile)(process.execPath, ['--eval', ''])
  return Math.max(1, (performance.now() - since) / idleMS)
}
