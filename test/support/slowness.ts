import { execFile } from 'node:child_process'
import { promisify } from 'node:util'

/** The longest time, ms, that an empty Node.js process takes on an idle machine of the slowest kind in use. */
const idleMS = 200

/**
 * Returns by how much this machine is currently slower than when it is idle, as a factor of at least 1. Tests of time
 * limits (such as "continues within 5 s") multiply their limit by it, because the limits do not apply to a machine that
 * is busy with other work.
 */
export async function slowness(): Promise<number> {
  const since = performance.now()
  await promisify(execFile)(process.execPath, ['--eval', ''])
  return Math.max(1, (performance.now() - since) / idleMS)
}
