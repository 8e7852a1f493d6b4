import path from 'node:path'
import type { Writable } from 'node:stream'
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { environment, linesOf, type ProgramRun } from './program-run.ts'

/**
 * Processes that run the program for one test after another (tandem-host.mjs), because starting Node, loading the modules and
 * compiling them takes more CPU time than a short sync. A process runs one instance at a time. It is not used again after
 * it was killed, after an instance that left something open, and after a failed test.
 */

interface Host {
  process: GuardedProcess
  runs: number
  /** Called for each line of its output. */
  onLine: (line: string) => void
  /** Called for each of the two outputs when a run has ended. */
  onMark: (mark: string) => void
}

/** Limits what earlier runs can accumulate. */
const runsMax = 50
const freeMax = 3
const free: Host[] = []
let isKeeping = false

/** Lets instances use the processes of earlier ones from now on. */
export function keepHosts(): void {
  isKeeping = true
}

/** Gives each instance a process of its own from now on. */
export function stopHosts(): void {
  isKeeping = false
}

export const areHostsKept = (): boolean => isKeeping

/** Returns the pids of the processes that run no program. */
export const hostPids = (): number[] => free.map((host) => host.process.pid)

/** Runs the program in a process that has run it before, or in a new one. */
export function runInHost(entry: string, args: string[], onLine: (line: string) => void): ProgramRun {
  const host = free.pop() ?? startHost()
  host.runs += 1
  host.onLine = onLine
  let running = true
  const marks: string[] = []
  const marked = new Promise<number>((resolve) => {
    host.onMark = (mark) => {
      marks.push(mark)
      if (marks.length === 2) resolve(Number(mark.split(' ')[0]))
    }
  })
  const ended = Promise.race([marked, host.process.ended]).then(async (code) => {
    running = false
    const isClean = marks.length === 2 && marks.every((mark) => mark.endsWith(' 0'))
    const isFree = isClean && isKeeping && host.runs < runsMax && free.length < freeMax && host.process.isRunning()
    if (isFree) free.push(host)
    else await host.process.kill()
    return code
  })
  ;(host.process.child.stdio[3] as Writable).write(`${JSON.stringify({ entry, args })}\n`)
  return {
    pid: host.process.pid,
    ended,
    isRunning: () => running,
    kill: async (signal) => {
      if (running) host.process.child.kill(signal)
      await ended
    },
  }
}

function startHost(): Host {
  const program = path.resolve(repositoryRoot, 'test/support/tandem-host.mjs')
  const spawned = spawnGuarded(process.execPath, [program], {
    cwd: repositoryRoot,
    env: environment(),
    output: 'pipe',
    takesInput: true,
  })
  const host: Host = { process: spawned, runs: 0, onLine: () => {}, onMark: () => {} }
  for (const stream of [spawned.child.stdout, spawned.child.stderr]) {
    linesOf(stream, (line) => {
      const at = line.indexOf('\0')
      if (at === -1) return host.onLine(line)
      if (at > 0) host.onLine(line.slice(0, at))
      host.onMark(line.slice(at + 1))
    })
  }
  void spawned.ended.then(() => {
    const at = free.indexOf(host)
    if (at !== -1) free.splice(at, 1)
  })
  return host
}
