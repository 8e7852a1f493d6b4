import { readFileSync } from 'node:fs'

/** USER_HZ: whatever the kernel counts in, it shows hundredths of a second. */
const ticksPerSecond = 100

/** User and system time of all threads so far; NaN where there is no /proc. */
export function cpuSecondsOf(pid: number): number {
  const stat = readProc(pid, 'stat')
  // The program's name stands in parentheses and may hold anything; utime is the 14th field, stime the 15th.
  const fields = stat.slice(stat.lastIndexOf(')') + 2).split(' ')
  return (Number(fields[11]) + Number(fields[12])) / ticksPerSecond
}

/** The most memory the process ever had resident, in millions of bytes. */
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

/** Seconds of wall clock and of CPU for each named process between `startMeter` and the call of what it returns. */
export function startMeter<Name extends string>(pids: Record<Name, number>): () => Record<Name | 'wall', number> {
  const names = Object.keys(pids) as Name[]
  const cpu = (): number[] => names.map((name) => cpuSecondsOf(pids[name]))
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

/** The value that `share` of the values do not exceed (nearest rank). */
export function quantile(values: number[], share: number): number {
  const sorted = [...values].sort((one, other) => one - other)
  return sorted[Math.max(0, Math.ceil(share * sorted.length) - 1)] ?? Number.NaN
}

/** Field by field: the peak of peaks, the median of everything else. */
export function overRuns<Figures extends { [name in keyof Figures]: number }>(all: Figures[]): Figures {
  const names = Object.keys(all[0] as Figures) as (keyof Figures)[]
  const merged = names.map((name) => {
    const values = all.map((figures) => figures[name])
    return [name, String(name).includes('peak') ? Math.max(...values) : median(values)]
  })
  return Object.fromEntries(merged) as Figures
}
