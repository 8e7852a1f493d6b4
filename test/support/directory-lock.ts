import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/**
 * Runs `work` while this process holds the lock folder `lock`. The folder is renamed into place with its owner's pid
 * already inside, so no process sees it without a pid. A lock whose owner no longer runs is taken over.
 *
 * The lock only avoids duplicate work: after `patienceSeconds`, `work` runs without the lock. Therefore `work` must
 * publish its results atomically.
 */
export async function withDirectoryLock<T>(lock: string, patienceSeconds: number, work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + patienceSeconds * 1000
  let held = tryLock(lock)
  while (!held && Date.now() < deadline) {
    if (ownerIsGone(lock)) rmSync(lock, { recursive: true, force: true })
    else await delay(100)
    held = tryLock(lock)
  }
  try {
    return await work()
  } finally {
    if (held) rmSync(lock, { recursive: true, force: true })
  }
}

function tryLock(lock: string): boolean {
  const prepared = `${lock}-${process.pid}-${Math.random().toString(36).slice(2)}`
  mkdirSync(prepared, { recursive: true })
  writeFileSync(path.join(prepared, 'pid'), String(process.pid))
  try {
    renameSync(prepared, lock) // The rename fails if `lock` exists, because the folder is never empty.
    return true
  } catch {
    rmSync(prepared, { recursive: true, force: true })
    return false
  }
}

function ownerIsGone(lock: string): boolean {
  try {
    const pid = Number(readFileSync(path.join(lock, 'pid'), 'utf8'))
    process.kill(pid, 0)
    return false
  } catch (error) {
    // ESRCH means that there is no such process. ENOENT means that the lock was just released; the next attempt handles
    // that.
    return (error as NodeJS.ErrnoException).code === 'ESRCH'
  }
}
