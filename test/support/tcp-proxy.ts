import { connect, createServer, type Server, Socket } from 'node:net'
import type { Duplex } from 'node:stream'
import { setTimeout as sleep } from 'node:timers/promises'
import { DelayLine, type LinkDirection } from './delay-line.ts'
import { claimPorts } from './free-ports.ts'
import { LinkPace } from './link-pace.ts'

/** By default a link has no delay, and its bandwidth is not limited. */
export interface LinkOptions {
  /** The delay of every byte in each direction. */
  delayMS?: number
  /** Bandwidth of each direction, which all connections share. */
  bytesPerSecond?: number | undefined
}

export interface ProxyOptions extends LinkOptions {
  /** Allows `setLink`. Every byte is then passed on by a timer's queue, which takes more time than a pipe. */
  variable?: boolean
}

export interface TcpProxy extends AsyncDisposable {
  port: number
  /** Changes the link from now on, for open connections too. Throws unless the proxy is `variable`. */
  setLink(link: LinkOptions): void
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
  { variable = false, ...first }: ProxyOptions = {},
): Promise<TcpProxy> {
  const isPlain = !variable && !first.delayMS && first.bytesPerSecond === undefined
  const link: Record<'toUpstream' | 'toClient', LinkDirection> = {
    toUpstream: { delayMS: 0, pace: null },
    toClient: { delayMS: 0, pace: null },
  }
  const setLink = ({ delayMS = 0, bytesPerSecond }: LinkOptions): void => {
    for (const direction of Object.values(link)) {
      direction.delayMS = delayMS
      direction.pace = bytesPerSecond === undefined ? null : new LinkPace(bytesPerSecond)
    }
  }
  setLink(first)
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  const streams = new Set<Duplex>()
  let forwarding = true

  const server = createServer({ pauseOnConnect: true }, (client) => {
    track(client)
    if (!forwarding) return // The connection stays open and unread until heal or cut.
    const upstream = connect(targetPort, targetHost)
    track(upstream)
    if (!isPlain) {
      void joinWithDelay(client, upstream)
      return
    }
    client.once('close', () => upstream.destroy())
    upstream.once('close', () => client.destroy())
    client.pipe(upstream)
    upstream.pipe(client)
  })

  async function joinWithDelay(client: Socket, upstream: Socket): Promise<void> {
    const toUpstream = new DelayLine(link.toUpstream)
    const toClient = new DelayLine(link.toClient)
    for (const line of [toUpstream, toClient]) track(line)
    // Bytes that are in flight when one side closes must reach the other side before it is closed.
    const closeLater = async (...others: Duplex[]): Promise<void> => {
      await sleep(2 * link.toClient.delayMS)
      for (const other of others) other.destroy()
    }
    client.once('close', () => void closeLater(toUpstream, toClient, upstream))
    upstream.once('close', () => void closeLater(toUpstream, toClient, client))
    upstream.pipe(toClient).pipe(client)
    // Over the simulated distance, the client's kernel would report the connection only now.
    await sleep(2 * link.toClient.delayMS)
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
    setLink: (changed) => {
      if (!variable) throw new Error('the link of this proxy cannot change: start it with `variable`')
      setLink(changed)
    },
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
