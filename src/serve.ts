import process from 'node:process'
import { createApi } from './api/app.ts'
import type { RefusedTokens } from './api/failed-tokens.ts'
import { Sampler } from './api/sampler.ts'
import { type ServeOptions, serveApi } from './api/server.ts'
import { Tokens } from './api/tokens.ts'
import { isLoopback } from './cli/listen-options.ts'
import { type ServeCommandOptions, shownOptions } from './cli/serve-options.ts'
import { readTokens } from './cli/token.ts'
import { collectInOnePass } from './collect-garbage.ts'
import { compose as composeInstance } from './compose.ts'
import { errorStack, errorText } from './domain/error-text.ts'
import { WorkMeter } from './domain/work-meter.ts'
import { createLog, type OpenLog } from './log/log.ts'

/**
 * Runs one instance, from its options to the signal that ends it.
 * @param compose creates the instance from its options
 */
export async function serve(options: ServeCommandOptions, version: string, compose = composeInstance): Promise<void> {
  collectInOnePass()
  const { journal, reopen, rotate } = openLog(options)
  // SIGUSR1 is handled even without a log file: by default it makes Node open its inspector, which runs any code that a
  // local user sends. mongosync, like mongod (https://www.mongodb.com/docs/manual/tutorial/rotate-log-files/),
  // rotates its log on this signal.
  process.on('SIGUSR1', () => {
    if (options.logPath === null) return
    rotate()
    journal('log rotated', {})
  })
  journal('Version info', { version, os: process.platform, arch: process.arch })
  journal('Mongosync Options', shownOptions(options))
  for (const notice of options.notices) journal('notice', { notice })
  const meter = new WorkMeter()
  const { instance, close } = compose({
    cluster0: options.cluster0,
    cluster1: options.cluster1,
    id: options.id,
    syncName: options.syncName,
    journal,
    meter,
    loadLevel: options.loadLevel,
    copyReadPreference: options.copyReadPreference,
    shardNames: options.shardNames,
    redis: options.redis,
    redisTls: options.redisTls,
    atStep: (step) => journal('commit step', { step }),
    onFailure: () => {
      if (options.exitOnFailure) setTimeout(() => process.exit(1), 1_000)
    },
  })
  const onInternalError = (error: unknown): void =>
    journal('request failed', { error: errorStack(error) ?? errorText(error) })
  const onTokensRefused = (refused: RefusedTokens): void => journal('tokens refused', refused)
  const sampler = new Sampler(instance, { onInternalError })
  sampler.record()
  const { port, bind, tls } = options
  const tokens = options.tokens && new Tokens(options.tokens)
  const api = createApi({
    instance,
    sampler,
    meter,
    version,
    tokens,
    anyHost: !isLoopback(bind),
    onInternalError,
    onTokensRefused,
    exchanges: {
      received: (request) => journal('Received request', request),
      answered: (response) => journal('sent response', response),
    },
  })
  onHangup(options, { journal, reopen, tokens, sampler })
  const onConnectionsRefused: ServeOptions['onConnectionsRefused'] = (refused) =>
    journal('connections refused', refused)
  const onClosing = (): void => sampler.close()
  const server = await serveApi({ api, port, hostname: bind, tls, onConnectionsRefused, onClosing }).catch(
    (error: Error) => {
      journal('cannot listen', { error: error.message })
      if (options.logPath !== null) process.stderr.write(`error: ${error.message}\n`)
      process.exit(1)
    },
  )
  journal('listening', { bind, port: server.port, tls: tls !== null, token: tokens !== null, version })

  let stopping = false
  const stop = async (): Promise<void> => {
    if (stopping) return // as in mongosync, repeated signals must not crash
    stopping = true
    journal('stopping', {})
    await server.close()
    await close()
    process.exit(0)
  }
  for (const signal of ['SIGINT', 'SIGTERM', 'SIGQUIT'] as const) process.on(signal, () => void stop())
  // A parent that opened an IPC channel (`tandem rehearse`) has ended, or wants this instance to end.
  process.once('disconnect', () => void stop())
  if (process.connected === false) void stop()
  process.on('SIGPIPE', () => {})
}

/**
 * On SIGHUP: reopens the log file by its name, and reads the token files again. Without a log file and token files,
 * SIGHUP ends the process as usual.
 */
function onHangup(
  { logPath, tokenOptions }: ServeCommandOptions,
  {
    journal,
    reopen,
    tokens,
    sampler,
  }: Pick<OpenLog, 'journal' | 'reopen'> & { tokens: Tokens | null; sampler: Sampler },
): void {
  const fromFiles = tokenOptions.tokenFile !== undefined || tokenOptions.readTokenFile !== undefined
  if (logPath === null && !fromFiles) return
  process.on('SIGHUP', () => {
    if (logPath !== null) {
      reopen()
      journal('log reopened', {})
    }
    if (tokens === null || !fromFiles) return
    const read = readTokens(tokenOptions)
    if ('problem' in read) return journal('tokens not read again', { error: read.problem })
    if (read.tokens === null) return
    tokens.replace(read.tokens)
    // Event listeners that sent a replaced token must reconnect with the new one.
    sampler.disconnect()
    journal('tokens read again', {})
  })
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
