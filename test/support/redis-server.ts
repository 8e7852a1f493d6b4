import { connect } from 'node:net'
import os from 'node:os'
import { claimPorts } from './free-ports.ts'
import { type GuardedProcess, spawnGuarded } from './guarded-process.ts'
import { resolveRedisServer } from './redis-binary.ts'
import { until } from './until.ts'

const host = '127.0.0.1'
const startTimeoutSeconds = 20
const commandTimeoutMs = 5_000

export interface TestRedis extends AsyncDisposable {
  url: string
  port: number
  /** Deletes the keys of all databases. */
  flush(): Promise<void>
  /** Returns the number of connections that are subscribed to a channel. */
  listeners(channel: string): Promise<number>
  /** Kills the server with SIGKILL and resolves when it has exited. */
  kill(): Promise<void>
  /** Starts a new, empty server on the same port. Kills the previous one if it still runs. */
  restart(): Promise<void>
  stop(): Promise<void>
}

/**
 * Starts a temporary Redis that keeps everything in memory. The password is on the command line because it is not a
 * secret.
 */
export async function startRedis({ password }: { password?: string } = {}): Promise<TestRedis> {
  const binary = await resolveRedisServer()
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  let server: GuardedProcess | null = null

  const send = (command: string) =>
    sendInline(port, [...(password === undefined ? [] : [`AUTH ${JSON.stringify(password)}`]), command]).then(
      (replies) => replies.at(-1),
    )

  async function start(): Promise<void> {
    const started = spawnGuarded(
      binary,
      [
        ...['--port', String(port), '--bind', host, '--dir', os.tmpdir()],
        ...['--save', '', '--appendonly', 'no', '--daemonize', 'no'],
        ...(password === undefined ? [] : ['--requirepass', password]),
      ],
      { output: 'ignore' },
    )
    server = started
    const answered = async () => {
      if (started.isRunning() && (await send('PING')) !== '+PONG')
        throw new Error('redis-server did not answer PING with PONG')
    }
    await until(`redis-server ready on port ${port}`, answered, startTimeoutSeconds)
    if (!started.isRunning()) throw new Error(`redis-server exited immediately on port ${port}`)
  }
  const kill = async () => {
    await server?.kill()
  }
  const stop = async () => {
    await kill()
    claimed.release()
  }
  try {
    await start()
  } catch (error) {
    await stop()
    throw error
  }
  return {
    url: `redis://${password === undefined ? '' : `:${encodeURIComponent(password)}@`}${host}:${port}`,
    port,
    listeners: async (channel) => {
      const script = JSON.stringify("return redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]")
      return Number((await send(`EVAL ${script} 0 ${JSON.stringify(channel)}`))?.replace(/^:/, ''))
    },
    flush: async () => {
      const reply = await send('FLUSHALL')
      if (reply !== '+OK') throw new Error(`FLUSHALL: ${reply}`)
    },
    kill,
    restart: async () => {
      await kill()
      await start()
    },
    stop,
    [Symbol.asyncDispose]: stop,
  }
}

/**
 * Sends inline commands (as in a telnet session) and returns the first line of each reply. It does not use the client
 * under test.
 */
function sendInline(port: number, commands: string[]): Promise<string[]> {
  return new Promise((resolve, reject) => {
    const socket = connect(port, host)
    let received = ''
    socket.setEncoding('utf8').setTimeout(commandTimeoutMs, () => socket.destroy(new Error('Redis does not answer')))
    socket.once('error', reject)
    socket.once('close', () => reject(new Error('Redis closed the connection')))
    socket.on('data', (text) => {
      received += text
      const lines = received.split('\r\n')
      if (lines.length <= commands.length) return
      resolve(lines.slice(0, commands.length))
      socket.destroy()
    })
    socket.once('connect', () => socket.write(commands.map((command) => `${command}\r\n`).join('')))
  })
}
