import { once } from 'node:events'
import { connect, createServer, type Server, type Socket } from 'node:net'
import { claimPorts } from './free-ports.ts'

export interface HoldingProxy extends AsyncDisposable {
  port: number
  /** Kept back now. */
  readonly heldBytes: number
  /**
   * As if packets were delayed: what clients send on the connections that stand now is taken from them and kept back, and is kept when
   * they have gone. New connections work.
   */
  hold(): void
  /** The same, but nothing is taken: the bytes stay in the kernels on the way. */
  stall(): void
  /**
   * What was kept back reaches the server. Resolves when the server has done with it on the connections that clients have given up;
   * to stall, they all must have.
   */
  deliver(): Promise<void>
  close(): Promise<void>
}

interface Way {
  client: Socket
  upstream: Socket
  held: Buffer[] | null
}

/** A TCP proxy of this process that delivers late. Clients of a replica set stay on it with `directConnection=true`. */
export async function startHoldingProxy(targetHost: string, targetPort: number): Promise<HoldingProxy> {
  const claimed = await claimPorts(1)
  const port = claimed.ports[0] as number
  const ways = new Set<Way>()

  const server = createServer({ allowHalfOpen: true }, (client) => {
    const upstream = connect({ port: targetPort, host: targetHost, allowHalfOpen: true })
    const way: Way = { client, upstream, held: null }
    ways.add(way)
    for (const socket of [client, upstream]) {
      socket.setNoDelay(true)
      socket.on('error', () => {}) // 'close' follows
    }
    client.on('data', (bytes) => {
      if (way.held) way.held.push(bytes)
      else upstream.write(bytes)
    })
    // Also after a reset: what had come before it is on its way all the same.
    client.once('close', () => {
      if (!way.held) upstream.end()
    })
    client.once('end', () => client.end())
    upstream.on('data', (bytes) => void (client.writable && client.write(bytes)))
    upstream.once('end', () => upstream.end())
    upstream.once('close', () => {
      ways.delete(way)
      client.destroy()
    })
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')

  const deliver = async (): Promise<void> => {
    const late = [...ways].filter(({ client, held }) => held !== null || client.isPaused())
    await Promise.all(
      late.map(async (way) => {
        const { client, upstream, held } = way
        const isOver = client.closed || client.isPaused()
        const done = once(upstream, 'close')
        way.held = null
        for (const bytes of held ?? []) upstream.write(bytes)
        client.resume()
        if (client.closed) upstream.end()
        if (isOver) await done
      }),
    )
  }
  const close = async (): Promise<void> => {
    for (const { client, upstream } of ways) for (const socket of [client, upstream]) socket.destroy()
    await closed(server)
    claimed.release()
  }
  return {
    port,
    get heldBytes() {
      return [...ways].flatMap(({ held }) => held ?? []).reduce((sum, bytes) => sum + bytes.length, 0)
    },
    hold: () => {
      for (const way of ways) way.held ??= []
    },
    stall: () => {
      for (const { client } of ways) client.pause()
    },
    deliver,
    close,
    [Symbol.asyncDispose]: close,
  }
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => server.close(() => resolve()))
}
