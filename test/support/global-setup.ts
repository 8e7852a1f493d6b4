import { execFileSync } from 'node:child_process'
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import os from 'node:os'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { keepDataInMemory } from './data-root.ts'
import { runRecordsVariable } from './guarded-process.ts'
import { resolveMongod } from './mongo-binaries.ts'
import { resolveRedisServer } from './redis-binary.ts'

/** When a worker ends, the reaper (guarded-process.ts) kills its children, which takes a moment. */
const reapTimeoutMs = 5_000

/**
 * Runs in vitest's main process before the workers, which inherit its environment. Vitest calls it once per project of
 * the run.
 */
export default async function setup(): Promise<() => Promise<void>> {
  keepDataInMemory()
  // Fetch the server once here, so that the download does not count towards the time limit of a test.
  await resolveMongod()
  // Without a Redis server, only the tests that need one fail.
  await resolveRedisServer().catch((error: Error) => process.stderr.write(`${error.message}\n`))
  const records = process.env[runRecordsVariable] ?? mkdtempSync(path.join(os.tmpdir(), 'tandem-run-'))
  process.env[runRecordsVariable] = records
  return () => assertNothingLeft(records)
}

async function assertNothingLeft(records: string): Promise<void> {
  const deadline = Date.now() + reapTimeoutMs
  let running = stillRunning(records)
  while (running.length > 0 && Date.now() < deadline) {
    await delay(50)
    running = stillRunning(records)
  }
  rmSync(records, { recursive: true, force: true })
  if (running.length === 0) return
  process.exitCode = 1 // Vitest prints an error of a teardown, but would still exit with 0.
  throw new Error(`processes of this run are still running:\n${running.join('\n')}`)
}

function stillRunning(records: string): string[] {
  if (!existsSync(records)) return []
  return readdirSync(records)
    .map((pid) => ({ pid, started: contents(path.join(records, pid)) }))
    .filter(({ pid, started }) => started !== null && commandLine(pid) === started) // The pid may belong to another process by now.
    .map(({ pid, started }) => `${pid} ${started}`)
}

/** Returns the file's text, or null if an ending process has just removed the record. */
function contents(file: string): string | null {
  try {
    return readFileSync(file, 'utf8')
  } catch {
    return null
  }
}

function commandLine(pid: string): string | null {
  try {
    // Small Linux images have no `ps`, and macOS has no /proc.
    if (process.platform === 'linux') return readFileSync(`/proc/${pid}/cmdline`, 'utf8').split('\0').join(' ').trim()
    return execFileSync('ps', ['-ww', '-o', 'args=', '-p', pid], { encoding: 'utf8' }).trim()
  } catch {
    return null
  }
}
