import { connect, createServer, type Server, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { DelayLine } from './delay-line.ts'
import { claimPorts } from './free-ports.ts'

export interface TcpProxy extends AsyncDisposable {
  port: number
  /** As if the process behind had died: connections end, new ones are refused. */
  cut(): Promise<void>
  /** As if packets were lost: connections stay and are accepted, but no byte gets through, either way. */
  blackhole(): void
  /** New connections work again. Those of a blackhole are destroyed with the bytes they held, as after a long partition. */
  heal(): Promise<void>
  close(): Promise<void>
}

/**
 * A TCP proxy of this process that can break. Clients of a replica set only stay on it with `directConnection=true`, for
 * the set tells them its members' own addresses; or with `startReplicaSet({ proxied: true })`, whose members have proxies as addresses.
 *
 * With `delayMS`, every byte arrives so many milliseconds later, in each direction: a round trip takes twice as long, and so
 * does opening a connection. Bandwidth stays the same.
 */
export async function startProxy(
  targetHost: string,
  targetPort: number,
  { delayMS = 0 }: { delayMS?: number } = {},
): Promise<TcpProxy> {
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  const streams = new Set<Duplex>()
  let forwarding = true

  const server = createServer({ pauseOnConnect: true }, (client) => {
    track(client)
    if (!forwarding) return // held, unread, until heal or cut
    const upstream = connect(targetPort, targetHost)
    track(upstream)
    if (delayMS > 0) {
      void joinFarApart(client, upstream)
      return
    }
    client.once('close', () => upstream.destroy())
    upstream.once('close', () => client.destroy())
    client.pipe(upstream)
    upstream.pipe(client)
  })

  async function joinFarApart(client: Socket, upstream: Socket): Promise<void> {
    const [there, back] = [new DelayLine(delayMS), new DelayLine(delayMS)]
    for (const line of [there, back]) track(line)
    // What is still on its way when one side has closed reaches the other side first.
    const closeLater = async (...others: Duplex[]): Promise<void> => {
      await sleep(2 * delayMS)
      for (const other of others) other.destroy()
    }
    client.once('close', () => void closeLater(there, back, upstream))
    upstream.once('close', () => void closeLater(there, back, client))
    upstream.pipe(back).pipe(client)
    await sleep(2 * delayMS) // the client's kernel says that it is connected at once; over distance it would know now
    if (forwarding) client.pipe(there).pipe(upstream)
  }

  function track(stream: Duplex): void {
    streams.add(stream)
    if (stream instanceof Socket) stream.setNoDelay(true)
    stream.on('error', () => {}) // 'close' follows and tells the other side
    stream.once('close', () => streams.delete(stream))
  }

  function destroyAll(): void {
    for (const stream of streams) stream.destroy()
  }

  const cut = async () => {
    const closed = closeServer(server)
    destroyAll()
    await closed
  }
  const close = async () => {
    await cut()
    claimed.release()
  }

  await listen(server, port)
  return {
    port,
    cut,
    blackhole: () => {
      forwarding = false
      for (const stream of streams) {
        stream.unpipe()
        stream.pause()
      }
    },
    heal: async () => {
      if (!forwarding) destroyAll()
      forwarding = true
      if (!server.listening) await listen(server, port)
    },
    close,
    [Symbol.asyncDispose]: close,
  }
}

function listen(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', reject)
    server.listen(port, '127.0.0.1', () => {
      server.off('error', reject)
      resolve()
    })
  })
}

function closeServer(server: Server): Promise<void> {
  return new Promise((resolve) => (server.listening ? server.close(() => resolve()) : resolve()))
}
