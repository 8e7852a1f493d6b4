import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Writable } from 'node:stream'

/**
 * Child processes that cannot outlive this process, however it ends.
 *
 * Each process starts one shell, the reaper, which reads from a pipe whose other end only this process holds. The kernel
 * closes the pipe when this process ends, also on SIGKILL. The reaper then kills every registered process and removes every
 * registered path.
 *
 *   this process ── "pid 123", "path /tmp/x", "gone pid 123" ──▶ reaper ── on EOF: kill -9, rm -rf
 *        └── "go" ──▶ child (waits for "go" before exec, so the reaper knows every child that runs)
 *
 * The reaper and the children run in their own sessions, so Ctrl-C in a terminal reaches only this process, which then decides the
 * order in which its children end.
 */
const reaperScript = `
trap '' HUP INT TERM
set -f
IFS='
'
pids= paths=
without() { for entry in $1; do [ "$entry" = "$2" ] || echo "$entry"; done; }
while read -r line; do
  case $line in
    'pid '*) pids="$pids
\${line#pid }" ;;
    'path '*) paths="$paths
\${line#path }" ;;
    'gone pid '*) pids=$(without "$pids" "\${line#gone pid }") ;;
    'gone path '*) paths=$(without "$paths" "\${line#gone path }") ;;
  esac
done
[ -z "$pids" ] || kill -9 $pids 2>/dev/null
[ -z "$paths" ] && exit
for attempt in 1 2 3 4 5 6 7 8 9 10; do rm -rf -- $paths 2>/dev/null && exit; sleep 0.2; done
`

/**
 * Environment variable that global-setup.ts sets to a folder with one file for each running child, to find children that
 * are left after a run.
 */
export const runRecordsVariable = 'TANDEM_TEST_RUN_RECORDS'

let reaperInput: Writable | null = null

function sendToReaper(line: string): void {
  if (!reaperInput) {
    const reaper = spawn('/bin/sh', ['-c', reaperScript], { stdio: ['pipe', 'ignore', 'ignore'], detached: true })
    reaper.unref()
    reaperInput = reaper.stdin
    // The pipe to the reaper must not keep this process alive.
    ;(reaper.stdin as Writable & { unref(): void }).unref()
  }
  reaperInput.write(`${line}\n`)
}

/** Makes the reaper remove the path if this process ends without removing it. */
export function guardPath(guarded: string): void {
  sendToReaper(`path ${guarded}`)
}

/** Removes a guarded path now. */
export function removeGuardedPath(guarded: string): void {
  rmSync(guarded, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
  sendToReaper(`gone path ${guarded}`)
}

export interface GuardedProcess {
  pid: number
  child: ChildProcess
  /** Resolves when the process has ended and its output is complete: the exit code, or null if a signal killed it. */
  ended: Promise<number | null>
  isRunning(): boolean
  /** Sends the signal (SIGKILL by default) and resolves when the process has ended. */
  kill(signal?: NodeJS.Signals): Promise<void>
}

const running = new Set<GuardedProcess>()

export const runningProcesses = (): GuardedProcess[] => [...running]

export function spawnGuarded(
  command: string,
  args: string[],
  options: Pick<SpawnOptions, 'cwd' | 'env'> & {
    output: 'pipe' | 'ignore' | number
    /** Gives the process a pipe as file descriptor 3, whose other end is `child.stdio[3]`. */
    takesInput?: boolean
  },
): GuardedProcess {
  const { output, takesInput = false, ...spawnOptions } = options
  const child = spawn('/bin/sh', ['-c', 'read -r go && exec "$@" </dev/null', 'guarded', command, ...args], {
    ...spawnOptions,
    stdio: ['pipe', output, output, ...(takesInput ? (['pipe'] as const) : [])],
    detached: true,
  })
  const { pid, stdin } = child
  if (pid === undefined || stdin === null) throw new Error(`cannot start ${command}`)
  sendToReaper(`pid ${pid}`)
  const removeRecord = recordForRun(pid, [command, ...args])
  stdin.on('error', () => {}) // The child may be killed before it reads "go". `ended` reports that.
  stdin.end('go\n')

  const ended = new Promise<number | null>((resolve) => {
    child.once('close', (code) => {
      running.delete(spawned)
      sendToReaper(`gone pid ${pid}`)
      removeRecord()
      resolve(code)
    })
  })
  const spawned: GuardedProcess = {
    pid,
    child,
    ended,
    isRunning: () => running.has(spawned),
    kill: async (signal = 'SIGKILL') => {
      if (running.has(spawned)) child.kill(signal)
      await ended
    },
  }
  running.add(spawned)
  return spawned
}

function recordForRun(pid: number, commandLine: string[]): () => void {
  const folder = process.env[runRecordsVariable]
  if (!folder) return () => {}
  const record = path.join(folder, String(pid))
  mkdirSync(folder, { recursive: true })
  writeFileSync(record, commandLine.join(' '))
  return () => rmSync(record, { force: true })
}
