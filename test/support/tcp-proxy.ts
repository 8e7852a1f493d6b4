import { connect, createServer, type Server, type Socket } from 'node:net'
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
 */
export async function startProxy(targetHost: string, targetPort: number): Promise<TcpProxy> {
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  const sockets = new Set<Socket>()
  let forwarding = true

  const server = createServer({ pauseOnConnect: true }, (client) => {
    track(client)
    if (!forwarding) return // held, unread, until heal or cut
    const upstream = connect(targetPort, targetHost)
    track(upstream)
    client.once('close', () => upstream.destroy())
    upstream.once('close', () => client.destroy())
    client.pipe(upstream)
    upstream.pipe(client)
  })

  function track(socket: Socket): void {
    sockets.add(socket)
    socket.setNoDelay(true)
    socket.on('error', () => {}) // 'close' follows and tells the other side
    socket.once('close', () => sockets.delete(socket))
  }

  function destroyAll(): void {
    for (const socket of sockets) socket.destroy()
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
      for (const socket of sockets) {
        socket.unpipe()
        socket.pause()
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
