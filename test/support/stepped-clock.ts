import { mkdtempSync, renameSync, writeFileSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { resolveFaketime } from './faketime.ts'
import { guardPath, removeGuardedPath } from './guarded-process.ts'

export interface SteppedClock {
  /** Variables that each server with this clock needs in addition to its own environment. */
  env: Record<string, string>
  /** Seconds by which the clock is ahead of the host's. */
  readonly aheadSeconds: number
  /** Steps the clock, as an administrator or NTP does. Servers use the new time within a second. */
  step(seconds: number): void
  close(): void
}

/**
 * Creates a wall clock that can be stepped while servers run (libfaketime). Their monotonic clock does not change, as when the
 * clock of a host is set (clock_settime(2)).
 */
export async function startSteppedClock(): Promise<SteppedClock> {
  const library = await resolveFaketime()
  const folder = mkdtempSync(path.join(os.tmpdir(), 'tandem-clock-'))
  guardPath(folder)
  const file = path.join(folder, 'offset')
  let aheadSeconds = 0
  const publish = (): void => {
    const staged = `${file}.new`
    writeFileSync(staged, `${aheadSeconds < 0 ? '' : '+'}${aheadSeconds}\n`)
    renameSync(staged, file)
  }
  publish()
  return {
    env: {
      LD_PRELOAD: library,
      FAKETIME_TIMESTAMP_FILE: file,
      FAKETIME_CACHE_DURATION: '1',
      FAKETIME_DONT_FAKE_MONOTONIC: '1',
      // Switches off a fix for an old glibc. With the fix, timed waits of mongod return immediately and mongod spins
      // (measured with glibc 2.36, mongod 6.0.27).
      FAKETIME_FORCE_MONOTONIC_FIX: '0',
    },
    get aheadSeconds() {
      return aheadSeconds
    },
    step: (seconds) => {
      aheadSeconds += seconds
      publish()
    },
    close: () => removeGuardedPath(folder),
  }
}
