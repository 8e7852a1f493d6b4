import { readFileSync, readlinkSync } from 'node:fs'

/** What tells one process from every other that has ever run, as far as its own kernel can tell. */
export interface ProcessIdentity {
  /** Of the running kernel: random, new with each boot. */
  bootID: string
  /** Pid namespace in which `pid` is a process. Containers of one host have one each, and in most of them the pid is 1. */
  pidNamespace: string
  pid: number
  /** When the process started, in clock ticks after boot: a pid is given again, but not at the same tick. */
  startedAt: string
}

/**
 * What the kernel tells about processes (proc(5), pid_namespaces(7)). Other systems than Linux tell none of it: there nothing is
 * ever proven, and a successor waits until the lease has expired. An object, so that a simulation can stand in the kernel's place.
 */
export const hostProcess = {
  /** This process; null where the system does not tell. */
  identity(): ProcessIdentity | null {
    const bootID = contentOf('/proc/sys/kernel/random/boot_id')
    const pidNamespace = namespaceOf('self')
    const startedAt = startOf('self')
    if (!bootID || !pidNamespace || !startedAt) return null
    return { bootID, pidNamespace, pid: process.pid, startedAt }
  },

  /**
   * True when that process has ended for certain. Only who sees the same pids may judge: the same boot of a kernel, and the same pid
   * namespace, which is gone with its last process.
   */
  hasEnded(other: ProcessIdentity): boolean {
    const own = this.identity()
    if (own?.bootID !== other.bootID || own.pidNamespace !== other.pidNamespace) return false
    const startedAt = startOf(String(other.pid))
    if (startedAt !== null) return startedAt !== other.startedAt
    // /proc may hide the processes of other users (hidepid); this does not.
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

/** Field 22 of `stat`. The second is the name of the executable in parentheses, which may itself hold spaces and parentheses. */
function startOf(pid: string): string | null {
  const stat = contentOf(`/proc/${pid}/stat`)
  return stat?.slice(stat.lastIndexOf(')') + 2).split(' ')[19] ?? null
}
