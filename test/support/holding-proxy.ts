import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { claimPorts } from './free-ports.ts'

export interface HoldingProxy extends AsyncDisposable {
  port: number
  /** Number of bytes that the proxy currently holds back. */
  readonly heldBytes: number
  /**
   * Simulates delayed packets. The proxy reads and holds back what clients send on the existing connections, also after the
   * clients have closed them. New connections work.
   */
  hold(): void
  /** Like `hold`, but the proxy does not read the bytes, so they stay in the kernels' buffers. */
  stall(): void
  /**
   * Delivers the bytes that were held back to the server. On connections that the client has closed, it resolves when the server has
   * processed them. After `stall`, the clients must have closed all stalled connections.
   */
  deliver(): Promise<void>
  close(): Promise<void>
}

interface ProxiedConnection {
  client: Socket
  upstream: Socket
  held: Buffer[] | null
}

/**
 * Starts a TCP proxy in this process that can delay delivery. Clients of a replica set must use `directConnection=true`
 * to stay on it.
 */
export async function startHoldingProxy(targetHost: string, targetPort: number): Promise<HoldingProxy> {
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  const connections = new Set<ProxiedConnection>()

  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ port: targetPort, host: targetHost, allowHalfOpen: true })
    const connection: ProxiedConnection = { client, upstream, held: null }
    connections.add(connection)
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true)
      socket.on('error', () => {}) // Node emits 'close' afterwards.
    }
    client.on('data', (bytes) => {
      if (connection.held) connection.held.push(bytes)
      else upstream.write(bytes)
    })
    // This also happens after a reset, because bytes received before the reset must still reach the server.
    client.once('close', () => {
      if (!connection.held) upstream.end()
    })
    client.once('end', () => client.end())
    upstream.on('data', (bytes) => void (client.writable && client.write(bytes)))
    upstream.once('end', () => upstream.end())
    upstream.once('close', () => {
      connections.delete(connection)
      client.destroy()
    })
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')

  const deliver = async (): Promise<void> => {
    const delayed = [...connections].filter(({ client, held }) => held !== null || client.isPaused())
    await Promise.all(
      delayed.map(async (connection) => {
        const { client, upstream, held } = connection
        const clientIsGone = client.closed || client.isPaused()
        const done = once(upstream, 'close')
        connection.held = null
        for (const bytes of held ?? []) upstream.write(bytes)
        client.resume()
        if (client.closed) upstream.end()
        if (clientIsGone) await done
      }),
    )
  }
  const close = async (): Promise<void> => {
    for (const { client, upstream } of connections) for (const socket of [client, upstream]) socket.destroy()
    await closed(server)
    claimed.release()
  }
  return {
    port,
    get heldBytes() {
      return [...connections].flatMap(({ held }) => held ?? []).reduce((sum, bytes) => sum + bytes.length, 0)
    },
    hold: () => {
      for (const connection of connections) connection.held ??= []
    },
    stall: () => {
      for (const { client } of connections) client.pause()
    },
    deliver,
    close,
    [Symbol.asyncDispose]: close,
  }
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()))
}
