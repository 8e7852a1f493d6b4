#!/usr/bin/env node
import { setMaxListeners } from 'node:events'
import { existsSync, readFileSync } from 'node:fs'
import process from 'node:process'
import { fileURLToPath } from 'node:url'
import type { Confirm } from './cli/confirm.ts'
import { parseCommandLine } from './cli/options.ts'
import type { WatchRequest } from './cli/watch.ts'

// Many listeners wait for the same stop signal, and Node reports more than ten as a leak.
setMaxListeners(200)

const version = readVersion()
const commandLine = parseCommandLine(process.argv.slice(2), process.env, version)
// Each command loads only its own modules. The driver takes longer to load than a request to an instance takes.
switch (commandLine.kind) {
  case 'print':
    process[commandLine.stream].write(commandLine.text)
    process.exitCode = commandLine.exitCode
    break
  case 'client': {
    const [{ runClient }, confirm] = await Promise.all([import('./cli/client.ts'), loadConfirm()])
    process.exitCode = await runClient(commandLine.request, {
      out: console.log,
      err: console.error,
      width: process.stdout.isTTY ? process.stdout.columns || 80 : null,
      ...(confirm && { confirm }),
    })
    break
  }
  case 'wait': {
    const { runWait } = await import('./cli/wait.ts')
    process.exitCode = await runWait(commandLine.request, {
      out: (line) => {
        if (process.stderr.isTTY) process.stderr.write('\r\u001b[K')
        console.log(line)
      },
      err: (line) => process.stderr.write(`${process.stderr.isTTY ? '\r\u001b[K' : ''}${line}\n`),
      report: (line) => process.stderr.write(process.stderr.isTTY ? `\r\u001b[K${line}` : `${line}\n`),
      interactive: process.stderr.isTTY === true,
    })
    break
  }
  case 'watch':
    await watch(commandLine.request)
    break
  case 'verify': {
    const { runVerify } = await import('./comparison/run-verify.ts')
    process.exitCode = await runVerify(commandLine.options, {
      out: (text) => process.stdout.write(text),
      err: (text) => process.stderr.write(text),
      interactive: process.stderr.isTTY === true,
    })
    break
  }
  case 'inventory': {
    const { runInventory } = await import('./inventory/run-inventory.ts')
    process.exitCode = await runInventory(commandLine.options, {
      out: (text) => process.stdout.write(text),
      err: (text) => process.stderr.write(text),
    })
    break
  }
  case 'health': {
    const { runHealth } = await import('./cli/health.ts')
    process.exitCode = await runHealth(commandLine.request, { out: console.log, err: console.error })
    break
  }
  case 'clean': {
    const [{ runClean }, confirm] = await Promise.all([import('./clean/run-clean.ts'), loadConfirm()])
    process.exitCode = await runClean(commandLine.options, {
      out: (text) => process.stdout.write(text),
      err: (text) => process.stderr.write(text),
      ...(confirm && { confirm }),
    })
    break
  }
  case 'rehearse': {
    const { runRehearse } = await import('./rehearse/run-rehearse.ts')
    const interrupted = new AbortController()
    // The first signal makes the rehearsal stop and clean up. The second one ends the process at once.
    for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP'] as const) {
      process.on(signal, () => (interrupted.signal.aborted ? process.exit(1) : interrupted.abort()))
    }
    process.exitCode = await runRehearse(commandLine.options, version, {
      out: (text) => process.stdout.write(text),
      err: (text) => process.stderr.write(text),
      signal: interrupted.signal,
    })
    break
  }
  case 'serve': {
    const { serve } = await import('./serve.ts')
    await serve(commandLine.options, version)
  }
}

/** Returns the function that asks the operator for confirmation; null without a terminal. */
async function loadConfirm(): Promise<Confirm | null> {
  if (!process.stdin.isTTY || !process.stdout.isTTY) return null
  const { askForYes } = await import('./cli/confirm.ts')
  const output = process.stderr.isTTY ? process.stderr : process.stdout
  return (lines) => askForYes(lines, { input: process.stdin, output })
}

/** Runs until Ctrl-C. It uses the alternate screen of a terminal, so that the previous content reappears at the end. */
async function watch(request: WatchRequest): Promise<void> {
  const { runWatch } = await import('./cli/watch.ts')
  const ended = new AbortController()
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => ended.abort())
  const onTerminal = process.stdout.isTTY === true && !request.json
  const write = (text: string): void => void process.stdout.write(text)
  if (onTerminal) write('\u001b[?1049h\u001b[?25l')
  try {
    await runWatch(request, {
      write,
      width: () => (onTerminal ? process.stdout.columns || 80 : null),
      signal: ended.signal,
    })
  } finally {
    if (onTerminal) write('\u001b[?25h\u001b[?1049l')
  }
}

function readVersion(): string {
  // The manifest is in the folder above `src/` and `dist/`, and two folders above the modules that tsc emits.
  const [manifest = ''] = ['../package.json', '../../package.json']
    .map((path) => fileURLToPath(new URL(path, import.meta.url)))
    .filter((path) => existsSync(path))
  return (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version
}
