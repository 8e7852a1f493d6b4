import { readdirSync, readFileSync, readlinkSync } from 'node:fs'

/** What a process holds, by the kernel's account. */
export interface ProcessFigures {
  /** Megabytes (of 1024 * 1024 bytes) resident. */
  rssMB: number
  openFiles: number
  /** Of the open files. */
  sockets: number
  threads: number
}

/** Linux only. Null when the process is gone. */
export function processFigures(pid: number): ProcessFigures | null {
  try {
    const status = readFileSync(`/proc/${pid}/status`, 'utf8')
    const figure = (name: string): number =>
      Number(new RegExp(`^${name}:\\s+(\\d+)`, 'm').exec(status)?.[1] ?? Number.NaN)
    const rssMB = figure('VmRSS') / 1024
    // A process that has ended and not been waited for has no memory any more.
    if (Number.isNaN(rssMB)) return null
    const files = readdirSync(`/proc/${pid}/fd`).map((name) => linkOf(`/proc/${pid}/fd/${name}`))
    const sockets = files.filter((file) => file.startsWith('socket:')).length
    return { rssMB, openFiles: files.length, sockets, threads: figure('Threads') }
  } catch (error) {
    if (['ENOENT', 'ESRCH'].includes((error as NodeJS.ErrnoException).code ?? '')) return null
    throw error
  }
}

/** Empty for one that was closed meanwhile. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path)
  } catch {
    return ''
  }
}
