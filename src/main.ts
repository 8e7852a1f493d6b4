#!/usr/bin/env node
import { setMaxListeners } from 'node:events'
import { readFileSync } from 'node:fs'
import process from 'node:process'
import { createApi } from './api/app.ts'
import { Sampler } from './api/sampler.ts'
import { serveApi } from './api/server.ts'
import { runVerify } from './audit/run-verify.ts'
import { runClient } from './cli/client.ts'
import { isLoopback } from './cli/listen-options.ts'
import { parseCommandLine } from './cli/options.ts'
import type { ServeCommandOptions } from './cli/serve-options.ts'
import { runWait } from './cli/wait.ts'
import { runWatch, type WatchRequest } from './cli/watch.ts'
import { collectInOneGo } from './collect-garbage.ts'
import { ComposedInstance } from './compose.ts'
import { createLog, type OpenLog } from './log/log.ts'

// Many wait for the same signal to stop: Node warns of more than ten, as of a leak.
setMaxListeners(200)

const version = readVersion()
const commandLine = parseCommandLine(process.argv.slice(2), process.env, version)
switch (commandLine.kind) {
  case 'print':
    process[commandLine.stream].write(commandLine.text)
    process.exitCode = commandLine.exitCode
    break
  case 'client':
    process.exitCode = await runClient(
      commandLine.request,
      console.log,
      process.stdout.isTTY ? process.stdout.columns || 80 : null,
    )
    break
  case 'wait':
    process.exitCode = await runWait(commandLine.request, {
      out: (line) => {
        if (process.stderr.isTTY) process.stderr.write('\r\u001b[K')
        console.log(line)
      },
      note: (line) => process.stderr.write(process.stderr.isTTY ? `\r\u001b[K${line}` : `${line}\n`),
      interactive: process.stderr.isTTY === true,
    })
    break
  case 'watch':
    await watch(commandLine.request)
    break
  case 'verify':
    process.exitCode = await runVerify(commandLine.options, {
      out: (text) => process.stdout.write(text),
      err: (text) => process.stderr.write(text),
      interactive: process.stderr.isTTY === true,
    })
    break
  case 'serve':
    collectInOneGo()
    await serve(commandLine.options)
}

/** Until Ctrl-C. On a terminal in a screen of its own, so that what stood there comes back. */
async function watch(request: WatchRequest): Promise<void> {
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

async function serve(options: ServeCommandOptions): Promise<void> {
  const { log, reopen } = openLog(options)
  if (options.logPath !== null) {
    process.on('SIGHUP', () => {
      reopen()
      log.info('log reopened')
    })
  }
  for (const notice of options.notices) log.warn({ notice }, 'notice')
  const crashAt = process.env['TANDEM_CRASH_AT']
  const instance = new ComposedInstance({
    cluster0: options.cluster0,
    cluster1: options.cluster1,
    id: options.id,
    log,
    loadLevel: options.loadLevel,
    redis: options.redis,
    atStep: (step) => {
      log.debug({ step }, 'commit step')
      // Fault tests: die here as by kill -9.
      if (step === crashAt) process.kill(process.pid, 'SIGKILL')
    },
    dropEventsOf: process.env['TANDEM_DROP_EVENTS_OF'] ?? null,
    onFailure: () => {
      if (options.exitOnFailure) setTimeout(() => process.exit(1), 1_000)
    },
  })
  const onInternalError = (error: unknown): void =>
    log.error({ error: error instanceof Error ? (error.stack ?? error.message) : String(error) }, 'request failed')
  const sampler = new Sampler(instance, { onInternalError })
  const { port, bind, tls, token } = options
  const api = createApi({ instance, sampler, version, token, anyHost: !isLoopback(bind), onInternalError })
  const onClosing = (): void => sampler.close()
  const server = await serveApi({ api, port, hostname: bind, tls, onClosing }).catch((error: Error) => {
    log.fatal({ error: error.message }, 'cannot listen')
    if (options.logPath !== null) process.stderr.write(`error: ${error.message}\n`)
    process.exit(1)
  })
  log.info({ bind, port: server.port, tls: tls !== null, token: options.token !== null, version }, 'listening')

  let stopping = false
  const stop = async (): Promise<void> => {
    if (stopping) return // mongosync: repeated signals must not crash
    stopping = true
    log.info('stopping')
    await server.close()
    await instance.close()
    process.exit(0)
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGQUIT'] as const) process.on(signal, () => void stop())
  process.on('SIGPIPE', () => {})
}

function openLog(options: ServeCommandOptions): OpenLog {
  const isTerminal = process.stdout.isTTY === true
  try {
    const inColour = isTerminal && !process.env['NO_COLOR']
    return createLog({ ...options, mongosyncID: options.id }, { isTerminal, inColour })
  } catch (error) {
    process.stderr.write(`error: ${(error as Error).message}\n`)
    process.exit(2)
  }
}

function readVersion(): string {
  const manifest = new URL('../../package.json', import.meta.url)
  return (JSON.parse(readFileSync(manifest, 'utf8')) as { version: string }).version
}
