// @ts-check
import { writeSync } from 'node:fs'
import { Socket } from 'node:net'
import process from 'node:process'
import { createInterface } from 'node:readline'

/**
 * Runs the built program again and again in this process, with its own command line each time. The modules are loaded and
 * compiled once, which takes most of the CPU time of a short sync. tandem-hosts.ts starts it.
 *
 * Each line on file descriptor 3 is the JSON of a run: `{ entry, args }`. A run ends when the program calls
 * `process.exit`, or when it returns without serving. Then a line that begins with a NUL character on both outputs contains the
 * exit code, and the number of timers, sockets and other resources that the run has left open.
 */

const lines = createInterface(new Socket({ fd: 3 }))
const stopSignals = ['SIGINT', 'SIGTERM', 'SIGQUIT']
const signals = [...stopSignals, 'SIGUSR1', 'SIGHUP', 'SIGPIPE', 'disconnect']
const ignore = () => {}
const patienceMs = 1_000
// Node opens these on first use. A run must not count them as its own.
void [process.stdout, process.stderr]
const resources = () => process.getActiveResourcesInfo().length
/** Resources of this process without a run. */
let own = 0
let runs = 0
/** Identifies the run that may end. An earlier run must not end a later one. */
let current = 0

/** @param {number} run @param {number} code */
function end(run, code) {
  if (run !== current) return
  current = 0
  for (const signal of signals) process.removeAllListeners(signal)
  // A signal that was sent at the moment at which the run ended must not end this process.
  for (const signal of stopSignals) process.on(signal, ignore)
  process.exitCode = undefined
  report(code, performance.now() + patienceMs)
}

/**
 * Writes the marks. Sockets that the run has closed disappear a moment later.
 * @param {number} code @param {number} deadline
 */
function report(code, deadline) {
  const left = resources() - own
  if (left > 0 && performance.now() < deadline) {
    // A timer with a reference would be a resource itself.
    setTimeout(() => report(code, deadline), 2).unref()
    return
  }
  for (const output of [1, 2]) writeSync(output, `\0${code} ${left}\n`)
}

lines.on('line', async (line) => {
  /** @type {{ entry: string, args: string[] }} */
  const { entry, args } = JSON.parse(line)
  own ||= resources()
  runs += 1
  const run = runs
  current = run
  for (const signal of stopSignals) process.removeListener(signal, ignore)
  process.argv = [process.execPath, entry, ...args]
  // @ts-expect-error: the original function does not return.
  process.exit = (code) => end(run, Number(code ?? process.exitCode ?? 0))
  try {
    // Another query makes Node evaluate the entry again, but not the modules that it imports.
    await import(`${entry}?run=${run}`)
    if (process.listenerCount('SIGTERM') === 0) process.exit()
  } catch (error) {
    if (run === current) console.error(error)
    end(run, 1)
  }
})
