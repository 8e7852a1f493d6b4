import { readFileSync, readlinkSync } from 'node:fs'

/** Identifies one process across containers, boots and hosts. The values are those that the kernel reports. */
export interface ProcessIdentity {
  /** A random value that the kernel chooses at each boot. */
  bootID: string
  /** The pid namespace of `pid`. Each container of a host has its own, and in most of them the process has pid 1. */
  pidNamespace: string
  pid: number
  /** Start time of the process in clock ticks after boot. A pid is reused, but not at the same tick. */
  startedAt: string
}

/**
 * Reads from the kernel which processes exist (proc(5), pid_namespaces(7)). Only Linux provides this. On other systems
 * no process is ever proven to have ended, and a successor waits until the lease has expired. A simulation replaces the
 * methods of this object.
 */
export const hostProcess = {
  /** Returns the identity of this process; null if the system does not report it. */
  identity(): ProcessIdentity | null {
    const bootID = contentOf('/proc/sys/kernel/random/boot_id')
    const pidNamespace = namespaceOf('self')
    const startedAt = startOf('self')
    if (!bootID || !pidNamespace || !startedAt) return null
    return { bootID, pidNamespace, pid: process.pid, startedAt }
  },

  /**
   * True when the other process has certainly ended. This is known only within the same boot of the kernel and the same
   * pid namespace, because elsewhere the same pid belongs to another process. A later namespace may reuse the id of an
   * earlier one, but only after all processes of the earlier one have ended.
   */
  hasEnded(other: ProcessIdentity): boolean {
    const own = this.identity()
    if (own?.bootID !== other.bootID || own.pidNamespace !== other.pidNamespace) return false
    const startedAt = startOf(String(other.pid))
    if (startedAt !== null) return startedAt !== other.startedAt
    // /proc may hide the processes of other users (hidepid). This signal does not depend on it.
    try {
      process.kill(other.pid, 0)
      return false
    } catch (error) {
      return (error as NodeJS.ErrnoException).code === 'ESRCH'
    }
  },
}

function contentOf(path: string): string | null {
  try {
    return readFileSync(path, 'latin1').trim() || null
  } catch {
    return null
  }
}

function namespaceOf(pid: string): string | null {
  try {
    return readlinkSync(`/proc/${pid}/ns/pid`)
  } catch {
    return null
  }
}

/**
 * Returns the start time of a process, which is field 22 of `stat`. Field 2 is the name of the executable in parentheses.
 * The name itself may contain spaces and parentheses.
 */
function startOf(pid: string): string | null {
  const stat = contentOf(`/proc/${pid}/stat`)
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null
}
