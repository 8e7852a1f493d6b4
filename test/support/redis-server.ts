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
  /** Empties all databases. */
  flush(): Promise<void>
  /** How many connections have subscribed to a channel. */
  listeners(channel: string): Promise<number>
  /** SIGKILL; resolves when it is gone. */
  kill(): Promise<void>
  /** A new, empty server on the same port, in place of one that may still run. */
  restart(): Promise<void>
  stop(): Promise<void>
}

/** A throwaway Redis that keeps everything in memory. The password is set on the command line: it is no secret. */
export async function startRedis({ password }: { password?: string } = {}): Promise<TestRedis> {
  const binary = await resolveRedisServer()
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  let server: GuardedProcess | null = null

  const ask = (command: string) =>
    askInline(port, [...(password === undefined ? [] : [`AUTH ${JSON.stringify(password)}`]), command]).then(
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
      if (started.isRunning() && (await ask('PING')) !== '+PONG') throw new Error('no PONG')
    }
    await until(`redis-server answering on port ${port}`, answered, startTimeoutSeconds)
    if (!started.isRunning()) throw new Error(`redis-server ended at once on port ${port}`)
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
      return Number((await ask(`EVAL ${script} 0 ${JSON.stringify(channel)}`))?.replace(/^:/, ''))
    },
    flush: async () => {
      const reply = await ask('FLUSHALL')
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

/** Commands as one types them into a terminal, and the line that each is answered with: no client under test takes part. */
function askInline(port: number, commands: string[]): Promise<string[]> {
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
