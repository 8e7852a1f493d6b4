import { type ChildProcess, type SpawnOptions, spawn } from 'node:child_process'
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import type { Writable } from 'node:stream'

/**
 * Children that cannot outlive this process, however it ends.
 *
 * One shell per process, the reaper, waits on a pipe whose other end only this process holds. The kernel closes it
 * when this process ends, also by SIGKILL, and the reaper then kills every process and removes every path it was told of.
 *
 *   this process ── "pid 123", "path /tmp/x", "gone pid 123" ──▶ reaper ── on EOF: kill -9, rm -rf
 *        └── "go" ──▶ child (waits for it before exec, so no child runs that the reaper has not heard of)
 *
 * Both are in sessions of their own: Ctrl-C in a terminal reaches this process alone, which then decides the order.
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

/** Set by global-setup.ts: a folder with a file for each child still running, to find those left over after a run. */
export const runRecordsVariable = 'TANDEM_TEST_RUN_RECORDS'

let reaperInput: Writable | null = null

function tellReaper(line: string): void {
  if (!reaperInput) {
    const reaper = spawn('/bin/sh', ['-c', reaperScript], { stdio: ['pipe', 'ignore', 'ignore'], detached: true })
    reaper.unref()
    reaperInput = reaper.stdin
    // The pipe to the reaper must not keep this process alive.
    ;(reaper.stdin as Writable & { unref(): void }).unref()
  }
  reaperInput.write(`${line}\n`)
}

/** Removes the path when this process ends without having done so itself. */
export function guardPath(guarded: string): void {
  tellReaper(`path ${guarded}`)
}

/** Removes a guarded path now. */
export function removeGuardedPath(guarded: string): void {
  rmSync(guarded, { recursive: true, force: true, maxRetries: 10, retryDelay: 50 })
  tellReaper(`gone path ${guarded}`)
}

export interface GuardedProcess {
  pid: number
  child: ChildProcess
  /** Settles once, when the process has ended and its output is complete: exit code, or null when killed by a signal. */
  ended: Promise<number | null>
  isRunning(): boolean
  /** Resolves when the process is gone. */
  kill(signal?: NodeJS.Signals): Promise<void>
}

export function spawnGuarded(
  command: string,
  args: string[],
  options: Pick<SpawnOptions, 'cwd' | 'env'> & { output: 'pipe' | 'ignore' | number },
): GuardedProcess {
  const { output, ...spawnOptions } = options
  const child = spawn('/bin/sh', ['-c', 'read -r go && exec "$@" </dev/null', 'guarded', command, ...args], {
    ...spawnOptions,
    stdio: ['pipe', output, output],
    detached: true,
  })
  const { pid, stdin } = child
  if (pid === undefined || stdin === null) throw new Error(`cannot start ${command}`)
  tellReaper(`pid ${pid}`)
  const removeRecord = recordForRun(pid, [command, ...args])
  stdin.on('error', () => {}) // the child may be killed before it reads "go"; `ended` tells
  stdin.end('go\n')

  let running = true
  const ended = new Promise<number | null>((resolve) => {
    child.once('close', (code) => {
      running = false
      tellReaper(`gone pid ${pid}`)
      removeRecord()
      resolve(code)
    })
  })
  return {
    pid,
    child,
    ended,
    isRunning: () => running,
    kill: async (signal = 'SIGKILL') => {
      if (running) child.kill(signal)
      await ended
    },
  }
}

function recordForRun(pid: number, commandLine: string[]): () => void {
  const folder = process.env[runRecordsVariable]
  if (!folder) return () => {}
  const record = path.join(folder, String(pid))
  mkdirSync(folder, { recursive: true })
  writeFileSync(record, commandLine.join(' '))
  return () => rmSync(record, { force: true })
}
