import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** Resources of a process as reported by the kernel. */
export interface ProcessFigures {
  /** Resident memory in units of 1024 * 1024 bytes. */
  rssMB: number
  openFiles: number
  /** Number of the open files that are sockets. */
  sockets: number
  threads: number
}

/** Reads the figures of a process (Linux only). Returns null if the process has ended. */
export function processFigures(pid: number): ProcessFigures | null {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    const figure = (name: string): number =>
      Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? Number.NaN)
    const rssMB = figure('VmRSS') / 1024
    // A zombie process has no memory figures.
    if (Number.isNaN(rssMB)) return null
    const files = readdirSync(`/proc/${pid}/fd`).map((name) => linkOf(`/proc/${pid}/fd/${name}`))
    const sockets = files.filter((file) => file.startsWith('socket:')).length
    return { rssMB, openFiles: files.length, sockets, threads: figure('Threads') }
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return null
    throw error
  }
}

/** Returns the link's target, or an empty string if the file was closed meanwhile. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}
