import { connect, createServer, type Server, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { DelayLine } from './delay-line.ts'
import { claimPorts } from './free-ports.ts'
import { LinkPace } from './link-pace.ts'

export interface LinkOptions {
  delayMS?: number
  bytesPerSecond?: number | undefined
}

export interface TcpProxy extends AsyncDisposable {
  port: number
  /** Simulates a crash of the target: open connections end, and new ones are rejected. */
  cut(): Promise<void>
  /** Simulates packet loss: connections stay open and new ones are accepted, but no byte passes in either direction. */
  blackhole(): void
  /**
   * Makes new connections work again. Connections of a black hole are destroyed with the bytes in them, as after a long
   * partition.
   */
  heal(): Promise<void>
  close(): Promise<void>
}

/**
 * Starts a TCP proxy in this process that can fail. Clients of a replica set stay on it only with `directConnection=true`, because
 * the set announces its members' own addresses, or with `startReplicaSet({ proxied: true })`, whose members have the proxies' addresses.
 *
 * `delayMS` delays every byte by this many milliseconds in each direction. A round trip takes twice that time, and so does
 * opening a connection. `bytesPerSecond` limits each direction, for all connections together. Without it, bandwidth stays
 * the same.
 */
export async function startProxy(
  targetHost: string,
  targetPort: number,
  { delayMS = 0, bytesPerSecond }: LinkOptions = {},
): Promise<TcpProxy> {
  const pace = (): LinkPace | null => (bytesPerSecond === undefined ? null : new LinkPace(bytesPerSecond))
  const paces = { toUpstream: pace(), toClient: pace() }
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  const streams = new Set<Duplex>()
  let forwarding = true

  const server = createServer({ pauseOnConnect: true }, (client) => {
    track(client)
    if (!forwarding) return // The connection stays open and unread until heal or cut.
    const upstream = connect(targetPort, targetHost)
    track(upstream)
    if (delayMS > 0 || bytesPerSecond !== undefined) {
      void joinWithDelay(client, upstream)
      return
    }
    client.once('close', () => upstream.destroy())
    upstream.once('close', () => client.destroy())
    client.pipe(upstream)
    upstream.pipe(client)
  })

  async function joinWithDelay(client: Socket, upstream: Socket): Promise<void> {
    const toUpstream = new DelayLine(delayMS, paces.toUpstream)
    const toClient = new DelayLine(delayMS, paces.toClient)
    for (const line of [toUpstream, toClient]) track(line)
    // Bytes that are in flight when one side closes must reach the other side before it is closed.
    const closeLater = async (...others: Duplex[]): Promise<void> => {
      await sleep(2 * delayMS)
      for (const other of others) other.destroy()
    }
    client.once('close', () => void closeLater(toUpstream, toClient, upstream))
    upstream.once('close', () => void closeLater(toUpstream, toClient, client))
    upstream.pipe(toClient).pipe(client)
    await sleep(2 * delayMS) // Over the simulated distance, the client's kernel would report the connection only now.
    if (forwarding) client.pipe(toUpstream).pipe(upstream)
  }

  function track(stream: Duplex): void {
    streams.add(stream)
    if (stream instanceof Socket) stream.setNoDelay(true)
    stream.on('error', () => {}) // Node emits 'close' afterwards, which closes the other side.
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
