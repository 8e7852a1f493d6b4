import { afterAll, beforeEach, vi } from 'vitest'
import { runningProcesses } from './guarded-process.ts'
import { keepSets, keptPids, stopSets } from './kept-sets.ts'
import { hostPids } from './tandem-hosts.ts'

/**
 * Runs before each test file that uses servers. Such files share a worker, its modules and its replica sets. If a file
 * leaves fake timers or processes behind, for example after a failed test, they are removed before the next file
 * begins. Vitest itself restores the spies.
 */

keepSets()

beforeEach(({ onTestFailed }) => onTestFailed(stopSets))

// Vitest calls `afterAll` hooks in the reverse order of their registration, so this one runs after those of the file.
afterAll(async () => {
  vi.useRealTimers()
  const kept = [...keptPids(), ...hostPids()]
  const left = runningProcesses().filter(({ pid }) => !kept.includes(pid))
  await Promise.all(left.map((one) => one.kill()))
})
