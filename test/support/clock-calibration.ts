import { copyFileSync, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import path from 'node:path'

/**
 * When WiredTiger starts, it compares the processor's cycle counter with the clock. It runs an empty loop of 100 million
 * iterations three times (`__global_calibrate_ticks` in `src/support/global.c`), which is 80 % of the processor time that a
 * new mongod needs until it listens. The shortest loop counts, and only statistics and the times of slow operations use the
 * result. The tests start hundreds of servers, so they run a copy of the packaged mongod whose loop has a million iterations.
 * These still take milliseconds, and the clock counts nanoseconds. No other byte differs.
 */
const iterations = 1_000_000

/** The end of the loop: `add $1,%rax`, `mov %rax,x`, `mov x,%rax`, `cmp $99999999,%rax`, `jbe`. `x` is a local variable. */
const increment = Buffer.from('4883c001488945', 'hex')
const compare = Buffer.from('483dffe0f50576', 'hex')
const compareOffset = 12
const boundOffset = compareOffset + 2

/** Shortens the calibration in the code of a mongod. Returns false and changes nothing unless the loop is found once. */
export function shortenCalibration(code: Buffer): boolean {
  const [loop, another] = loopEnds(code)
  if (loop === undefined || another !== undefined) return false
  code.writeUInt32LE(iterations - 1, loop + boundOffset)
  return true
}

function loopEnds(code: Buffer): number[] {
  const found: number[] = []
  for (let at = code.indexOf(compare); at !== -1; at = code.indexOf(compare, at + 1)) {
    const start = at - compareOffset
    const isIncremented = code.subarray(start, start + increment.length).equals(increment)
    const [stored, loaded] = [code[at - 5], code[at - 1]]
    if (start >= 0 && isIncremented && stored === loaded) found.push(start)
  }
  return found
}

/**
 * Returns the path of a copy of the mongod with a short calibration. The copy is made once and published by rename. If its
 * loop is not found, for example because another compiler built it, the path is that of the mongod itself.
 */
export function withShortCalibration(mongod: string): string {
  const folder = path.join(path.dirname(path.dirname(mongod)), 'short-calibration')
  const copy = path.join(folder, path.basename(mongod))
  if (existsSync(copy)) return copy
  const code = readFileSync(mongod)
  if (!shortenCalibration(code)) return mongod
  mkdirSync(folder, { recursive: true })
  const staged = path.join(folder, `.staging-${process.pid}`)
  copyFileSync(mongod, staged) // It is executable.
  writeFileSync(staged, code)
  renameSync(staged, copy)
  return copy
}
