import { execFile } from 'node:child_process'
import os from 'node:os'
import { promisify } from 'node:util'
import type { Pair } from './servers.ts'

/** A machine with at least so many cores needs no such separation. */
const enoughCores = 8
/** How much lower tandem's priority is than that of the servers (nice). */
const lowerBy = 9

/**
 * On a machine with few cores, gives each server a core of its own. Otherwise work on one cluster would delay requests to the
 * other, which does not happen when the clusters are on different machines. Returns false where `taskset` is missing.
 */
export async function separateServers({ source, destination }: Pair): Promise<boolean> {
  const cores = os.cpus().length
  if (cores >= enoughCores || cores < 2) return false
  const half = cores >> 1
  const pin = (pid: number, from: number, to: number) =>
    promisify(execFile)('taskset', ['--all-tasks', '--cpu-list', '--pid', `${from}-${to}`, String(pid)])
  try {
    await pin(source.pid, 0, half - 1)
    await pin(destination.pid, half, cores - 1)
    return true
  } catch {
    return false
  }
}

/** Lets the servers run before tandem, which would run on a machine of its own. */
export function giveWay(pid: number): void {
  if (os.cpus().length >= enoughCores) return
  os.setPriority(pid, Math.min(os.constants.priority.PRIORITY_LOW, os.getPriority() + lowerBy))
}
