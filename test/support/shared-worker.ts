import { afterAll, beforeEach, vi } from 'vitest'
import { runningProcesses } from './guarded-process.ts'
import { keepSets, keptPids, stopSets } from './kept-sets.ts'

/**
 * Runs before each test file with servers. Such files share a worker, its modules and its replica sets, so what a file
 * leaves behind, for example because a test has failed, is removed before the next file begins. Vitest itself restores the
 * spies.
 */

keepSets()

beforeEach(({ onTestFailed }) => onTestFailed(stopSets))

// Vitest calls the hook that was registered first after those of the file.
afterAll(async () => {
  vi.useRealTimers()
  const kept = keptPids()
  const left = runningProcesses().filter(({ pid }) => !kept.includes(pid))
  await Promise.all(left.map((one) => one.kill()))
})
