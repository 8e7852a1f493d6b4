import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { runRecordsVariable } from './guarded-process.ts'
import { resolveMongod } from './mongo-binaries.ts'
import { resolveRedisServer } from './redis-binary.ts'

/** A worker that ends leaves its children to the reaper (guarded-process.ts), which needs a moment. */
const reapTimeoutMs = 5_000

/** Runs in vitest's main process before the workers, which inherit its environment. Each project of the run calls it. */
export default async function setup(): Promise<() => Promise<void>> {
  // Fetched here once, within no test's time limit.
  await resolveMongod()
  // Without a Redis, only the tests that want one fail.
  await resolveRedisServer().catch((error: Error) => process.stderr.write(`${error.message}\n`))
  const records = process.env[runRecordsVariable] ?? mkdtempSync(path.join(os.tmpdir(), 'tandem-run-'))
  process.env[runRecordsVariable] = records
  return () => assertNothingLeft(records)
}

async function assertNothingLeft(records: string): Promise<void> {
  const deadline = Date.now() + reapTimeoutMs
  let left = stillRunning(records)
  while (left.length > 0 && Date.now() < deadline) {
    await delay(50)
    left = stillRunning(records)
  }
  rmSync(records, { recursive: true, force: true })
  if (left.length === 0) return
  process.exitCode = 1 // vitest prints an error of a teardown, but would still exit with 0
  throw new Error(`processes of this run are still there:\n${left.join('\n')}`)
}

function stillRunning(records: string): string[] {
  if (!existsSync(records)) return []
  return readdirSync(records)
    .map((pid) => ({ pid, started: contents(path.join(records, pid)) }))
    .filter(({ pid, started }) => started !== null && commandLine(pid) === started) // the pid may be another's by now
    .map(({ pid, started }) => `${pid} ${started}`)
}

/** Null for a record that a process which is just ending has removed. */
function contents(file: string): string | null {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return null
  }
}

function commandLine(pid: string): string | null {
  try {
    // `ps` is missing from small images of Linux, /proc from macOS.
    if (process.platform === 'linux') return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim()
    return execFileSync('ps', ['-ww', '-o', 'args=', '-p', pid], { encoding: 'utf8' }).trim()
  } catch {
    return null
  }
}
