import { readFileSync } from 'node:fs'

/** USER_HZ. Linux reports CPU time in hundredths of a second, regardless of its internal tick. */
const ticksPerSecond = 100

/** Returns the user and system seconds of all threads so far, or NaN on a system without /proc. */
export function cpuSecondsOf(pid: number): number {
  const stat = readProc(pid, 'stat')
  // The program's name is in parentheses and may contain any character. The 14th field is utime, the 15th is stime
  // (proc(5)).
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond
}

/** Returns the process's peak resident memory in millions of bytes. */
export function peakMegabytesOf(pid: number): number {
  return (Number(/VmHWM:\s*(\d+) kB/.exec(readProc(pid, 'status'))?.[1] ?? Number.NaN) * 1024) / 1e6
}

function readProc(pid: number, name: string): string {
  try {
    return readFileSync(`/proc/${pid}/${name}`, 'latin1')
  } catch {
    return ''
  }
}

/**
 * Returns a function that returns the wall-clock seconds since this call, and the CPU seconds that each named process
 * or group of processes has used since this call.
 */
export function startMeter<Name extends string>(
  pids: Record<Name, number | readonly number[]>,
): () => Record<Name | 'wall', number> {
  const names = Object.keys(pids) as Name[]
  const cpu = (): number[] =>
    names.map((name) => [pids[name]].flat().reduce((sum, pid) => sum + cpuSecondsOf(pid as number), 0))
  const [began, before] = [performance.now(), cpu()]
  return () => {
    const wall = (performance.now() - began) / 1000
    const used = cpu().map((seconds, index) => seconds - (before[index] as number))
    return Object.fromEntries([['wall', wall], ...names.map((name, index) => [name, used[index]])])
  }
}

export function median(values: number[]): number {
  const sorted = [...values].sort((one, other) => one - other)
  const middle = sorted.length >> 1
  return sorted.length % 2
    ? (sorted[middle] as number)
    : ((sorted[middle - 1] as number) + (sorted[middle] as number)) / 2
}

/** Returns the smallest value that at least `share` (0 to 1) of the values do not exceed (nearest rank). */
export function quantile(values: number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}

/** Merges the runs field by field: the maximum of fields whose name contains `peak`, the median of all others. */
export function summaryOfRuns<Figures extends { [name in keyof Figures]: number }>(all: Figures[]): Figures {
  const names = Object.keys(all[0] as Figures) as (keyof Figures)[]
  const merged = names.map((name) => {
    const values = all.map((figures) => figures[name])
    return [name, String(name).includes('peak') ? Math.max(...values) : median(values)]
  })
  return Object.fromEntries(merged) as Figures
}
