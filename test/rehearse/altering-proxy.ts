import { once } from 'node:events'
import { type AddressInfo, connect, createServer, type Socket } from 'node:net'

export interface AlteringProxy extends AsyncDisposable {
  port: number
}

/**
 * Starts a proxy that replaces a text in the server's answers with another text of the same length. It simulates a
 * server that behaves differently. The text is not replaced where it is split between two packets.
 */
export async function startAlteringProxy(targetPort: number, before: string, after: string): Promise<AlteringProxy> {
  if (before.length !== after.length) throw new Error('both texts must have the same length')
  const sockets = new Set<Socket>()
  const server = createServer((client) => {
    const upstream = connect(targetPort, '127.0.0.1')
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on('error', () => {}) // Node emits 'close' afterwards.
      socket.once('close', () => sockets.delete(socket))
    }
    client.once('close', () => upstream.destroy())
    upstream.once('close', () => client.destroy())
    client.pipe(upstream)
    upstream.on('data', (bytes: Buffer) =>
      client.write(Buffer.from(bytes.toString('latin1').replaceAll(before, after), 'latin1')),
    )
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: async () => {
      const closed = once(server, 'close')
      server.close()
      for (const socket of sockets) socket.destroy()
      await closed
    },
  }
}
