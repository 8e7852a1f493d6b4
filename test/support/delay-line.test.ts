import { connect, createServer, type Socket } from 'node:net'
import { afterEach, beforeEach, expect, it, onTestFinished } from 'vitest'
import { DelayLine, type LinkDirection } from './delay-line.ts'
import { LinkPace } from './link-pace.ts'
import { startProxy, type TcpProxy } from './tcp-proxy.ts'

const delayMS = 20
const megabyte = 1024 * 1024

/** An echo server behind a proxy with a delay. */
const echo = createServer((socket) => socket.pipe(socket).on('error', () => {}))
let proxy: TcpProxy

beforeEach(async () => {
  await new Promise<void>((resolve) => echo.listen(0, '127.0.0.1', resolve))
  proxy = await startProxy('127.0.0.1', (echo.address() as { port: number }).port, { delayMS })
})
afterEach(async () => {
  await proxy.close()
  echo.close()
})

it('delays opening a connection and each exchange by a round trip', async () => {
  const began = performance.now()
  const client = connect(proxy.port, '127.0.0.1')
  for (const text of ['one', 'two', 'three']) expect(await exchange(client, text)).toBe(text)
  expect(performance.now() - began).toBeGreaterThanOrEqual(4 * 2 * delayMS)
})

it('delivers megabytes unchanged and in order, with all of them in flight at once', async () => {
  const sent = Buffer.from(Uint32Array.from({ length: (8 * megabyte) / 4 }, (_, number) => number).buffer)
  const began = performance.now()
  const client = connect(proxy.port, '127.0.0.1')
  client.write(sent)
  const received: Buffer[] = []
  let bytes = 0
  for await (const chunk of client as AsyncIterable<Buffer>) {
    received.push(chunk)
    bytes += chunk.length
    if (bytes >= sent.length) break
  }
  expect(Buffer.concat(received).equals(sent)).toBe(true)
  // Sending chunks of at most 64 KB one after the other would take 128 round trips, which is 5 s.
  expect(performance.now() - began).toBeLessThan(64 * 2 * delayMS)
})

it('delivers the bytes that were sent just before the end of a connection, and then the end', async () => {
  const received: Buffer[] = []
  const served = new Promise<void>((resolve) =>
    echo.once('connection', (socket: Socket) => {
      socket.on('data', (chunk: Buffer) => received.push(chunk)).once('end', () => resolve())
    }),
  )
  connect(proxy.port, '127.0.0.1').end('goodbye')
  await served
  expect(Buffer.concat(received).toString()).toBe('goodbye')
})

it('shares a limited bandwidth among all connections', async () => {
  const bytesPerSecond = 4 * megabyte
  const limited = await startProxy('127.0.0.1', (echo.address() as { port: number }).port, { bytesPerSecond })
  onTestFinished(() => limited.close())
  const began = performance.now()
  const sent = Buffer.alloc(megabyte, 7)
  const received = await Promise.all(
    [1, 2].map(async () => {
      const client = connect(limited.port, '127.0.0.1')
      client.write(sent)
      const chunks: Buffer[] = []
      for await (const chunk of client as AsyncIterable<Buffer>) {
        chunks.push(chunk)
        if (Buffer.concat(chunks).length >= sent.length) break
      }
      return Buffer.concat(chunks)
    }),
  )
  for (const bytes of received) expect(bytes.equals(sent)).toBe(true)
  // In each direction, both connections together send 2 MB at 4 MB/s, which takes half a second.
  expect(performance.now() - began).toBeGreaterThanOrEqual(500)
})

it('changes the delay of open connections', async () => {
  const port = (echo.address() as { port: number }).port
  const variable = await startProxy('127.0.0.1', port, { variable: true })
  onTestFinished(() => variable.close())
  const client = connect(variable.port, '127.0.0.1')
  expect(await exchange(client, 'fast')).toBe('fast')
  const began = performance.now()
  variable.setLink({ delayMS: 50 })
  expect(await exchange(client, 'slow')).toBe('slow')
  expect(performance.now() - began).toBeGreaterThanOrEqual(100)
})

it('delivers what was sent before a change of the link in its order', async () => {
  const link: LinkDirection = { delayMS: 40, pace: new LinkPace(1_000) }
  const line = new DelayLine(link)
  line.write('sent over the slow link, ')
  Object.assign(link, { delayMS: 0, pace: null })
  line.end('then over the fast one')
  const received: string[] = []
  for await (const chunk of line) received.push(String(chunk))
  expect(received.join('')).toBe('sent over the slow link, then over the fast one')
})

it('refuses to change the link of a proxy that passes bytes on directly', () => {
  expect(() => proxy.setLink({ delayMS: 1 })).toThrow('variable')
})

it('carries no more than its bandwidth in any period, and idle time is not saved up', () => {
  const pace = new LinkPace(1_000)
  expect(pace.carry(100, 0)).toBe(100)
  expect(pace.carry(50, 10)).toBe(150)
  expect(pace.carry(10, 1_000)).toBe(1_010)
})

function exchange(client: Socket, text: string): Promise<string> {
  return new Promise((resolve, reject) => {
    client.once('data', (data: Buffer) => resolve(data.toString()))
    client.once('error', reject)
    client.write(text)
  })
}
