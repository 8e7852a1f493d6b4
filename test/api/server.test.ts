import { once } from 'node:events'
import { createConnection, type Socket } from 'node:net'
import { networkInterfaces } from 'node:os'
import { afterEach, describe, expect, test, vi } from 'vitest'
import { type ServedApi, type ServeOptions, serveApi } from '../../src/api/server.ts'
import { apiUnderTest } from './recording-instance.ts'

const open: ServedApi[] = []
/** An address of this machine that is not a loopback address. The server treats clients with this address as remote. */
const ownAddress = Object.values(networkInterfaces())
  .flat()
  .find((one) => one && !one.internal && one.family === 'IPv4')?.address

async function served(options: Partial<ServeOptions> = {}) {
  const { api, instance } = apiUnderTest()
  const server = await serveApi({ api, port: 0, ...options })
  open.push(server)
  return { server, instance, url: `http://127.0.0.1:${server.port}` }
}

afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()))
})

/**
 * Sends `text` as raw bytes, and `later` after the first answer. Resolves with everything that the server sends until it closes
 * the connection.
 */
function exchange(port: number, text: string, later = ''): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = createConnection({ port, host: '127.0.0.1' })
    let received = ''
    socket.setEncoding('utf8')
    socket.on('data', (data) => {
      received += data
    })
    if (later !== '') socket.once('data', () => socket.write(later))
    socket.on('close', () => resolve(received))
    socket.on('error', reject)
    socket.write(text)
  })
}

/** Returns the JSON body of a raw answer, which may be chunked. */
function jsonOf(answer: string): unknown {
  return JSON.parse(answer.slice(answer.indexOf('{', answer.indexOf('\r\n\r\n')), answer.lastIndexOf('}') + 1))
}

describe('the server', () => {
  test('answers over HTTP on a free port when given port 0', async () => {
    const { server, url, instance } = await served()
    expect(server.port).toBeGreaterThan(0)
    const progress = await fetch(`${url}/api/v1/progress`)
    expect(await progress.json()).toMatchObject({ progress: { state: 'IDLE' }, success: true })
    const form = { method: 'POST', body: '{}', headers: { 'Content-Type': 'application/x-www-form-urlencoded' } }
    expect(await (await fetch(`${url}/api/v1/pause`, form)).json()).toEqual({ success: true })
    const none = await exchange(
      server.port,
      'POST /api/v1/resume HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n',
    )
    expect(jsonOf(none)).toEqual({ success: true })
    expect(instance.calls.map(({ command }) => command)).toEqual(['pause', 'resume'])
  })

  test('closes connections beyond its limit at once, reports it, and serves new ones once it is below the limit again', async () => {
    const reported: unknown[] = []
    const { server, url } = await served({
      connectionsMax: 2,
      onConnectionsRefused: (refused) => reported.push(refused),
    })
    const connected = async () => {
      const socket = createConnection({ port: server.port, host: '127.0.0.1' })
      await once(socket, 'connect')
      return socket
    }
    const held = [await connected(), await connected()]
    // The server closes or resets the connection of a refused client.
    for (let sent = 0; sent < 3; sent += 1) await expect(fetch(`${url}/healthz`)).rejects.toThrow()
    expect(reported).toEqual([{ connections: 1, connectionsMax: 2, remoteAddress: null }])
    for (const socket of held) socket.destroy()
    await vi.waitFor(async () => expect((await fetch(`${url}/healthz`)).status).toBe(200))
  })

  test('accepts 256 connections by default', async () => {
    const { server, url } = await served()
    const sockets = Array.from({ length: 256 }, () => createConnection({ port: server.port, host: '127.0.0.1' }))
    await Promise.all(sockets.map((socket) => once(socket, 'connect')))
    await expect(fetch(`${url}/healthz`)).rejects.toThrow()
    for (const socket of sockets) socket.destroy()
    await vi.waitFor(async () => expect((await fetch(`${url}/healthz`)).status).toBe(200))
  })

  test.skipIf(!ownAddress)('accepts 64 connections of one address, and still serves other addresses', async () => {
    const host = ownAddress as string
    const reported: unknown[] = []
    const { server, url } = await served({
      hostname: '0.0.0.0',
      onConnectionsRefused: (refused) => reported.push(refused),
    })
    const connect = (): Socket => createConnection({ port: server.port, host }).on('error', () => {})
    const sockets = Array.from({ length: 64 }, connect)
    await Promise.all(sockets.map((socket) => once(socket, 'connect')))
    const late = Array.from({ length: 200 }, connect)
    await Promise.all(late.map((socket) => once(socket, 'close')))
    expect(reported).toEqual([{ connections: 1, connectionsMax: 64, remoteAddress: host }])
    for (let count = 0; count < 100; count += 1) expect((await fetch(`${url}/healthz`)).status).toBe(200)
    expect(sockets.filter(({ destroyed }) => destroyed)).toEqual([])
    sockets[0]?.destroy()
    // The address can connect again. The server answers 403 because the Host is not a loopback name.
    await vi.waitFor(async () => expect((await fetch(`http://${host}:${server.port}/healthz`)).status).toBe(403))
    for (const socket of sockets) socket.destroy()
  })

  test('binds 127.0.0.1 by default: other addresses of the machine do not answer', async () => {
    const { server } = await served()
    await expect(fetch(`http://[::1]:${server.port}/healthz`)).rejects.toThrow()
    await expect(fetch(`http://127.0.0.2:${server.port}/healthz`)).rejects.toThrow()
  })

  test('refuses a foreign Host over the wire', async () => {
    const { server } = await served()
    const answer = await exchange(
      server.port,
      'GET /api/v1/progress HTTP/1.1\r\nHost: evil.test\r\nConnection: close\r\n\r\n',
    )
    expect(answer).toMatch(/^HTTP\/1\.1 403 /)
    expect(jsonOf(answer)).toMatchObject({ success: false, error: 'InvalidRequest' })
  })

  test('names the port and the remedy when the port is in use', async () => {
    const { server } = await served()
    const { api } = apiUnderTest()
    await expect(serveApi({ api, port: server.port })).rejects.toThrow(
      `port ${server.port} on 127.0.0.1 is already in use; stop what listens there or give another --port`,
    )
  })

  test('reads a large body to its end and answers 413 in the failure shape', async () => {
    const { url } = await served()
    for (const bytes of [1024 * 1024 + 1, 8 * 1024 * 1024]) {
      const reply = await fetch(`${url}/api/v1/start`, { method: 'POST', body: ' '.repeat(bytes) })
      expect(reply.status).toBe(413)
      expect(await reply.json()).toMatchObject({ success: false, error: 'RequestTooLarge' })
    }
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
  })

  test('refuses a chunked body of more than 1 MiB', async () => {
    const { server } = await served()
    const chunk = `10000\r\n${' '.repeat(0x10000)}\r\n`
    const answer = await exchange(
      server.port,
      `POST /api/v1/start HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n${chunk.repeat(20)}0\r\n\r\n`,
    )
    expect(answer).toMatch(/^HTTP\/1\.1 413 /)
  })

  test.each([
    ['header', 'GET /api/v1/progress HTTP/1.1\r\nHost: loc'],
    ['body', 'POST /api/v1/start HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{"source":'],
  ])('ends a connection whose %s does not arrive in time', async (_part, text) => {
    const { server, instance, url } = await served({ headersTimeoutSeconds: 0.2, requestTimeoutSeconds: 0.3 })
    const answer = await exchange(server.port, text)
    expect(answer).toMatch(/^HTTP\/1\.1 408 /)
    expect(jsonOf(answer)).toMatchObject({ success: false })
    expect(instance.calls).toEqual([])
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
  })

  test('a command may take longer than the request timeout', async () => {
    const { url, instance } = await served({ headersTimeoutSeconds: 0.2, requestTimeoutSeconds: 0.2 })
    instance.answer = () => new Promise((resolve) => setTimeout(resolve, 1200))
    const reply = await fetch(`${url}/api/v1/commit`, { method: 'POST' })
    expect(await reply.json()).toEqual({ success: true })
  })

  test.each([
    ['not HTTP', 'hello\r\n\r\n', 400],
    ['HTTP/1.1 without Host', 'GET /healthz HTTP/1.1\r\n\r\n', 400],
    ['an impossible Host', 'GET /healthz HTTP/1.1\r\nHost: a b\r\nConnection: close\r\n\r\n', 400],
    ['oversized headers', `GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`, 431],
  ])('answers %s and continues to serve', async (_name, text, status) => {
    const { server, url } = await served()
    const answer = await exchange(server.port, text)
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
    expect((await fetch(`${url}/healthz`)).status).toBe(200)
  })

  const health = 'HEAD /healthz HTTP/1.1\r\n'
  test.each([
    ['malformed', `${health}Host: localhost\r\nno header\r\n\r\n`, 400],
    ['oversized', `${health}Host: localhost\r\nX: ${'x'.repeat(40_000)}\r\n\r\n`, 431],
    [
      'malformed after a valid one in the same packet',
      `${health}Host: localhost\r\n\r\n${health}no header\r\n\r\n`,
      400,
    ],
    ['sent with an invalid Host', `${health}Host: a b\r\nConnection: close\r\n\r\n`, 400],
    ['never sent', '', 408],
    [
      'sent with an incomplete body, which the server does not await',
      `${health}Host: localhost\r\nContent-Length: 9\r\n\r\n{`,
      200,
    ],
  ])('answers with headers only to a HEAD request that is %s', async (_what, text, status) => {
    const { server } = await served({ headersTimeoutSeconds: 0.2, requestTimeoutSeconds: 0.3 })
    const answer = await exchange(server.port, text)
    expect(answer).toMatch(new RegExp(`^HTTP/1\\.1 ${status} `))
    expect(answer.indexOf('\r\n\r\n')).toBe(answer.length - 4)
  })

  test.each([
    ['HEAD', `${health}no header\r\n\r\n`, false],
    ['POST', 'POST /api/v1/start HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno number\r\n', true],
  ])(
    'the answer to a malformed %s after another request follows the method of the malformed request',
    async (_method, text, hasBody) => {
      const { server } = await served()
      const answer = await exchange(server.port, `${health}Host: localhost\r\n\r\n`, text)
      expect(answer.match(/HTTP\/1\.1 \d+/g)).toEqual(['HTTP/1.1 200', 'HTTP/1.1 400'])
      expect(answer.includes('{')).toBe(hasBody)
    },
  )

  test('close waits for the answer of a running command, and ends idle connections', async () => {
    const { server, url, instance } = await served()
    await fetch(`${url}/healthz`)
    instance.answer = () => new Promise((resolve) => setTimeout(resolve, 300))
    const running = fetch(`${url}/api/v1/commit`, { method: 'POST' })
    while (instance.calls.length === 0) await new Promise((resolve) => setTimeout(resolve, 5))
    const began = performance.now()
    await server.close()
    expect(performance.now() - began).toBeLessThan(1500)
    expect(await (await running).json()).toEqual({ success: true })
    await expect(fetch(`${url}/healthz`)).rejects.toThrow()
  })
})
