import { isIPv6 } from 'node:net'
import type { Command } from 'commander'
import { printable } from '../domain/printable.ts'
import { exitCodes } from './exit-codes.ts'
import { ask } from './request.ts'
import { addServeOptions } from './serve-options.ts'
import { applySettings, type Environment } from './settings.ts'

/** `tandem health` reports whether the instance with these options answers, to a supervisor on the same machine. */

export interface HealthRequest {
  /** Base address. */
  url: string
}

const answerMS = 2_500
/** An instance that listens on all interfaces (the key) is reached from this machine at a loopback address (the value). */
const loopbackOf: Readonly<Record<string, string>> = { '0.0.0.0': '127.0.0.1', '::': '::1' }

export function addHealthCommand(program: Command, env: Environment, found: (request: HealthRequest) => void): void {
  const health = program
    .command('health')
    .description(
      'ask whether the instance with these options answers on this machine, for health checks of containers; exit code ' +
        `${exitCodes.success}: it does, ${exitCodes.unreachable}: it does not`,
    )
    .helpOption('-h, --help', 'print this help')
  addServeOptions(health).action((_options, command: Command) => {
    applySettings(command, env)
    const { bind, port, tlsCert } = command.opts<{ bind: string; port: number; tlsCert?: string }>()
    if (port === 0)
      command.error('error: --port: with 0 the instance takes a free port, which only its log names; give a fixed port')
    const host = loopbackOf[bind] ?? bind
    found({ url: `${tlsCert ? 'https' : 'http'}://${isIPv6(host) ? `[${host}]` : host}:${port}` })
  })
}

/** Prints that the instance answers, or why it is not healthy, and returns the exit code. */
export async function runHealth(
  { url }: HealthRequest,
  { out, err }: { out: (line: string) => void; err: (line: string) => void },
): Promise<number> {
  const problem = await problemOf(url)
  if (problem === null) {
    out(`${url} answers`)
    return exitCodes.success
  }
  err(printable(`error: ${url} ${problem}`))
  return exitCodes.unreachable
}

async function problemOf(url: string): Promise<string | null> {
  try {
    // Every certificate is accepted, because it need not name this address. The request has no token, so another
    // program that listens here learns nothing from it.
    const request = { method: 'GET', body: null, timeoutMS: answerMS, anyCertificate: true } as const
    const { status } = await ask(`${url}/healthz`, request)
    return status === 200 ? null : `answers ${status}, not as an instance of tandem does`
  } catch (error) {
    const { name, code } = error as NodeJS.ErrnoException
    return `does not answer (${name === 'TimeoutError' || code === undefined ? 'not in time' : code})`
  }
}
