import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'

/**
 * Runs `work` while this process holds the lock folder `lock`. The folder appears by rename with its owner's pid already
 * inside, so it is never seen without one; a lock whose owner is dead is taken over.
 *
 * The lock only saves work from being done twice: after `patienceSeconds` the work is done without it, so what it
 * produces must be published atomically anyway.
 */
export async function withDirectoryLock<T>(lock: string, patienceSeconds: number, work: () => Promise<T>): Promise<T> {
  const deadline = Date.now() + patienceSeconds * 1000
  let held = tryLock(lock)
  while (!held && Date.now() < deadline) {
    if (ownerIsDead(lock)) rmSync(lock, { recursive: true, force: true })
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
    renameSync(prepared, lock) // fails when `lock` exists, for it is never empty
    return true
  } catch {
    rmSync(prepared, { recursive: true, force: true })
    return false
  }
}

function ownerIsDead(lock: string): boolean {
  try {
    const pid = Number(readFileSync(path.join(lock, 'pid'), 'utf8'))
    process.kill(pid, 0)
    return false
  } catch (error) {
    // ESRCH: no such process. ENOENT: the lock has just been released, which the next attempt finds out.
    return (error as NodeJS.ErrnoException).code === 'ESRCH'
  }
}
