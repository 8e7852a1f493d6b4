import process from 'node:process'
import { createApi } from './api/app.ts'
import { Sampler } from './api/sampler.ts'
import { serveApi } from './api/server.ts'
import { isLoopback } from './cli/listen-options.ts'
import type { ServeCommandOptions } from './cli/serve-options.ts'
import { collectInOneGo } from './collect-garbage.ts'
import { ComposedInstance, type ComposeOptions } from './compose.ts'
import { errorStack, errorText } from './domain/error-text.ts'
import { createLog, type OpenLog } from './log/log.ts'

/**
 * One instance, from its options to the signal that ends it.
 * @param compose what is served, made of the same parts
 */
export async function serve(
  options: ServeCommandOptions,
  version: string,
  compose = (parts: ComposeOptions): ComposedInstance => new ComposedInstance(parts),
): Promise<void> {
  collectInOneGo()
  const { journal, reopen, rotate } = openLog(options)
  // Also without a file: Node answers SIGUSR1 by opening its inspector, which runs whatever a local user sends to it. mongosync,
  // like mongod (https://www.mongodb.com/docs/manual/tutorial/rotate-log-files/), rotates its log then.
  process.on('SIGUSR1', () => {
    if (options.logPath === null) return
    rotate()
    journal('log rotated', {})
  })
  if (options.logPath !== null) {
    process.on('SIGHUP', () => {
      reopen()
      journal('log reopened', {})
    })
  }
  for (const notice of options.notices) journal('notice', { notice })
  const instance = compose({
    cluster0: options.cluster0,
    cluster1: options.cluster1,
    id: options.id,
    journal,
    loadLevel: options.loadLevel,
    redis: options.redis,
    atStep: (step) => journal('commit step', { step }),
    onFailure: () => {
      if (options.exitOnFailure) setTimeout(() => process.exit(1), 1_000)
    },
  })
  const onInternalError = (error: unknown): void =>
    journal('request failed', { error: errorStack(error) ?? errorText(error) })
  const sampler = new Sampler(instance, { onInternalError })
  const { port, bind, tls, token } = options
  const api = createApi({ instance, sampler, version, token, anyHost: !isLoopback(bind), onInternalError })
  const onClosing = (): void => sampler.close()
  const server = await serveApi({ api, port, hostname: bind, tls, onClosing }).catch((error: Error) => {
    journal('cannot listen', { error: error.message })
    if (options.logPath !== null) process.stderr.write(`error: ${error.message}\n`)
    process.exit(1)
  })
  journal('listening', { bind, port: server.port, tls: tls !== null, token: token !== null, version })

  let stopping = false
  const stop = async (): Promise<void> => {
    if (stopping) return // mongosync: repeated signals must not crash
    stopping = true
    journal('stopping', {})
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
