import { once } from 'node:events'
import { type AddressInfo, connect } from 'node:net'
import { createServer, type TlsOptions } from 'node:tls'
import { afterAll, afterEach, beforeAll, expect, it, vi } from 'vitest'
import type { RedisTls } from '../../src/domain/redis-url.ts'
import { RedisLiveness } from '../../src/redis/redis-liveness.ts'
import { startRedis, type TestRedis } from '../support/redis-server.ts'
import { tlsPem } from '../support/tls/files.ts'
import { heartbeatOf } from './liveness-stores.ts'

/**
 * A real Redis behind a proxy that terminates TLS, because the Redis that is packaged for tests was built without TLS.
 */

let redis: TestRedis
const closers: (() => unknown)[] = []
beforeAll(async () => {
  redis = await startRedis()
})
afterAll(() => redis?.stop())
afterEach(async () => {
  for (const close of closers.splice(0).reverse()) await close()
})

/** Resolves with the port of the proxy. */
async function proxied(options: TlsOptions = {}): Promise<number> {
  const sockets = new Set<{ destroy(): void }>()
  const proxy = createServer({ cert: tlsPem.server, key: tlsPem.server, ...options }, (socket) => {
    const onward = connect(redis.port, '127.0.0.1')
    for (const one of [socket, onward]) {
      sockets.add(one)
      one.on('error', () => {})
    }
    socket.pipe(onward).pipe(socket)
    socket.on('close', () => onward.destroy())
    onward.on('close', () => socket.destroy())
  })
  proxy.listen(0, '127.0.0.1')
  await once(proxy, 'listening')
  closers.push(() => {
    for (const socket of sockets) socket.destroy()
    proxy.close()
  })
  return (proxy.address() as AddressInfo).port
}

function open(port: number, tls: RedisTls): RedisLiveness {
  const liveness = new RedisLiveness(`rediss://127.0.0.1:${port}`, 'sync', { tls })
  closers.push(() => liveness.close())
  return liveness
}

it('a server whose certificate the authority of --redisTlsCAFile signed is trusted, for commands and notifications', async () => {
  const port = await proxied()
  const [one, other] = [open(port, { ca: tlsPem.authority }), open(port, { ca: tlsPem.authority })]
  await one.publish(heartbeatOf('a'))
  expect(await other.instances()).toMatchObject([{ id: 'a', alive: true }])
  const notified = vi.fn()
  other.onNotified = notified
  await vi.waitFor(() => {
    one.notify()
    expect(notified).toHaveBeenCalled()
  }, 20_000)
})

it('a server is not trusted without that authority, and calls reject', async () => {
  const port = await proxied()
  await expect(open(port, {}).publish(heartbeatOf('a'))).rejects.toThrow(
    /--redis: .*(unable to verify|self.signed|issuer)/i,
  )
  await expect(open(port, { ca: tlsPem.client }).instances()).rejects.toThrow(/--redis: /)
})

it('a server that requires a client certificate receives the certificate of --redisTlsCert', async () => {
  const port = await proxied({ requestCert: true, rejectUnauthorized: true, ca: tlsPem.client })
  const shown = { ca: tlsPem.authority, cert: tlsPem.client, key: tlsPem.client }
  await open(port, shown).publish(heartbeatOf('b'))
  await expect(open(port, { ca: tlsPem.authority }).publish(heartbeatOf('b'))).rejects.toThrow(/--redis: /)
})
