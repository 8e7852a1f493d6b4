import { describe, expect, test } from 'vitest'
import { FatalError, type RefusalName, RefusedError, refusalStatus } from '../../src/domain/errors.ts'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

const plainCommands = ['pause', 'resume', 'commit', 'abort', 'reverse'] as const
const commands = ['start', ...plainCommands] as const
const bodyOf = (command: string) => (command === 'start' ? minimalStart : {})

describe('commands', () => {
  test.each(commands)('POST /api/v1/%s reaches the instance, and the answer contains only success', async (command) => {
    const { post, instance } = apiUnderTest()
    const reply = await post(`/api/v1/${command}`, bodyOf(command))
    expect(reply.status).toBe(200)
    expect(reply.body).toEqual({ success: true })
    expect(instance.calls.map((call) => call.command)).toEqual([command])
  })

  test('the answer to a start has its warnings beside success', async () => {
    const { post, instance } = apiUnderTest()
    instance.startWarnings = ['the source is not blocked']
    expect((await post('/api/v1/start', minimalStart)).body).toEqual({
      success: true,
      warnings: ['the source is not blocked'],
    })
  })

  test.each(commands)('%s needs no credential', async (command) => {
    const { post } = apiUnderTest()
    const reply = await post(`/api/v1/${command}`, bodyOf(command))
    expect(reply.status).toBe(200)
    expect(reply.headers.has('www-authenticate')).toBe(false)
  })

  test.each(plainCommands)('%s takes an empty body as {}', async (command) => {
    const { post, instance } = apiUnderTest()
    for (const body of [undefined, '', ' \n', '{}']) expect((await post(`/api/v1/${command}`, body)).status).toBe(200)
    expect(instance.calls).toHaveLength(4)
  })

  test('an empty body of start is {} and lacks source and destination', async () => {
    const { post, instance } = apiUnderTest()
    const reply = await post('/api/v1/start')
    expect(reply.status).toBe(400)
    expect(reply.body.errorDescription).toMatch(/^source: is required.*; destination: is required/)
    expect(instance.calls).toEqual([])
  })

  test.each(plainCommands)('%s refuses unknown fields and names them', async (command) => {
    const { post, instance } = apiUnderTest()
    const reply = await post(`/api/v1/${command}`, { force: true })
    expect(reply.status).toBe(400)
    expect(reply.body).toMatchObject({
      success: false,
      error: 'InvalidRequest',
      errorDescription:
        command === 'commit'
          ? 'force: unknown field; the allowed fields are maxSeconds, dryRun'
          : 'force: unknown field; no field is allowed here',
    })
    expect(instance.calls).toEqual([])
  })

  test.each([
    [{}, { dryRun: false, maxSeconds: null }],
    [{ dryRun: true }, { dryRun: true, maxSeconds: null }],
    [
      { maxSeconds: 10, dryRun: false },
      { dryRun: false, maxSeconds: 10 },
    ],
  ])('the API passes a commit with %j on to the instance', async (body, request) => {
    const { post, instance } = apiUnderTest()
    for (const path of ['commit', 'all/commit']) expect((await post(`/api/v1/${path}`, body)).status).toBe(200)
    expect(instance.calls.map((call) => call.request)).toEqual([request, request])
  })

  test.each([
    [{ maxSeconds: 0 }, /^maxSeconds: must be at least 1$/],
    [{ maxSeconds: 1.5 }, /^maxSeconds: must be a whole number$/],
    [{ maxSeconds: '10' }, /^maxSeconds: must be a number$/],
    [{ maxSeconds: 100_000 }, /^maxSeconds: must be at most 86400$/],
    [{ dryRun: 1 }, /^dryRun: must be true or false$/],
  ])('commit with %j is refused with the name of the field', async (body, description) => {
    const { post, instance } = apiUnderTest()
    const reply = await post('/api/v1/commit', body)
    expect([reply.status, reply.body.error]).toEqual([400, 'InvalidRequest'])
    expect(reply.body.errorDescription).toMatch(description)
    expect(instance.calls).toEqual([])
  })
})

describe('bodies', () => {
  test.each([
    'application/json',
    'application/x-www-form-urlencoded',
    'text/plain',
    'multipart/form-data; boundary=x',
    'nonsense',
  ])('are parsed as JSON with Content-Type %s', async (contentType) => {
    const { post } = apiUnderTest()
    expect((await post('/api/v1/start', minimalStart, { 'Content-Type': contentType })).status).toBe(200)
    expect((await post('/api/v1/pause', '{}', { 'Content-Type': contentType })).status).toBe(200)
  })

  test.each(commands)('%s refuses a body that is not a JSON object', async (command) => {
    const { post, instance } = apiUnderTest()
    for (const body of ['{', 'source=cluster0', '[]', '[{}]', 'null', '1', '"x"', 'true', '{}{}', "{'a':1}"]) {
      const reply = await post(`/api/v1/${command}`, body)
      expect([reply.status, reply.body.error], body).toEqual([400, 'InvalidRequest'])
      expect(reply.body.errorDescription).toMatch(/^body: /)
    }
    expect(instance.calls).toEqual([])
  })

  test('that are not UTF-8 are refused', async () => {
    const { api } = apiUnderTest()
    const response = await api.request('/api/v1/pause', { method: 'POST', body: new Uint8Array([0x7b, 0xff, 0x7d]) })
    expect(response.status).toBe(400)
    expect(await response.json()).toMatchObject({ error: 'InvalidRequest' })
  })

  const padded = (bytes: number) => `{}${' '.repeat(bytes - 2)}`

  test.each(commands)('%s refuses more than 1 MiB', async (command) => {
    const { post, instance } = apiUnderTest()
    const reply = await post(`/api/v1/${command}`, padded(1024 * 1024 + 1))
    expect(reply.status).toBe(413)
    expect(reply.body).toMatchObject({ success: false, error: 'RequestTooLarge', errorDescription: expect.any(String) })
    expect(instance.calls).toEqual([])
  })

  test('of 1 MiB are read, and a larger declared length is refused without reading', async () => {
    const { post, api } = apiUnderTest()
    expect((await post('/api/v1/pause', padded(1024 * 1024))).status).toBe(200)
    const endless = new ReadableStream({ pull: () => new Promise(() => {}) })
    const response = await api.request('/api/v1/pause', {
      method: 'POST',
      headers: { 'Content-Length': '1048577' },
      body: endless,
      duplex: 'half',
    })
    expect(response.status).toBe(413)
  })

  test('of undeclared length are refused when they exceed 1 MiB', async () => {
    const { api } = apiUnderTest()
    const chunk = new Uint8Array(64 * 1024).fill(0x20)
    let sent = 0
    const body = new ReadableStream({
      pull: (controller) => {
        sent += chunk.length
        controller.enqueue(chunk)
      },
    })
    const response = await api.request('/api/v1/pause', { method: 'POST', body, duplex: 'half' })
    expect(response.status).toBe(413)
    expect(sent).toBeLessThan(2 * 1024 * 1024)
  })

  test('that end early are refused', async () => {
    const { api, internalErrors } = apiUnderTest()
    const body = new ReadableStream({ pull: (controller) => controller.error(new Error('socket hang up')) })
    const response = await api.request('/api/v1/pause', { method: 'POST', body, duplex: 'half' })
    expect(response.status).toBe(400)
    expect(internalErrors).toEqual([])
  })
})

describe('failures', () => {
  test.each(Object.entries(refusalStatus) as [RefusalName, number][])(
    '%s is answered with status %i',
    async (name, status) => {
      const { post, instance } = apiUnderTest()
      instance.answer = () => Promise.reject(new RefusedError(name, 'field: what; remedy'))
      for (const command of commands) {
        const reply = await post(`/api/v1/${command}`, bodyOf(command))
        expect(reply.status).toBe(status)
        expect(reply.body).toMatchObject({ success: false, error: name, errorDescription: 'field: what; remedy' })
      }
    },
  )

  test('a failed start may be sent again', async () => {
    const { post, instance } = apiUnderTest()
    instance.answer = () => Promise.reject(new RefusedError('ClusterUnreachable', 'cluster1: no answer'))
    expect((await post('/api/v1/start', minimalStart)).status).toBe(503)
    instance.answer = async () => {}
    expect((await post('/api/v1/start', minimalStart)).status).toBe(200)
    expect(instance.calls[0]).toEqual(instance.calls[1])
  })

  test('an unexpected error is answered with InternalError and no details, and reported in full to the log', async () => {
    const faults: unknown[] = [
      new Error('connect to mongodb://root:hunter2@db.test failed at /srv/secret.ts'),
      new FatalError('DuplicateKey', 'hunter2'),
    ]
    for (const fault of faults) {
      const { post, instance, internalErrors } = apiUnderTest()
      instance.answer = () => Promise.reject(fault)
      const reply = await post('/api/v1/commit', {})
      expect(reply.status).toBe(500)
      expect(reply.body).toMatchObject({ success: false, error: 'InternalError', errorDescription: expect.any(String) })
      expect(JSON.stringify(reply.body)).not.toMatch(/hunter2|secret|db\.test/)
      expect(internalErrors).toEqual([fault])
    }
  })

  test('a refusal that quotes a connection string is shown without its credentials', async () => {
    const { post, instance } = apiUnderTest()
    const message = 'cannot reach mongodb://root:hunter2@db.test:27017/?replicaSet=a; start it'
    instance.answer = () =>
      Promise.reject(new RefusedError('ClusterUnreachable', message, { cause: new Error('hunter2') }))
    const reply = await post('/api/v1/start', minimalStart)
    expect(reply.body.errorDescription).toBe('cannot reach mongodb://***@db.test:27017/?replicaSet=a; start it')
  })

  test.each(['/api', '/api/v1', '/api/v2/start', '/api/v1/Start', '/api/v1/start/', '/api/v1/unknown'])(
    '%s does not exist: 404 in the failure shape, naming the path',
    async (path) => {
      const { post, get } = apiUnderTest()
      for (const reply of [await get(path), await post(path, {})]) {
        expect(reply.status).toBe(404)
        expect(reply.body).toMatchObject({
          success: false,
          error: 'InvalidRequest',
          errorDescription: expect.any(String),
        })
        expect(reply.body.errorDescription).toContain(`path: ${path} `)
      }
    },
  )

  test.each([
    ...commands.map((command) => [`/api/v1/${command}`, 'POST', ['GET', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']] as const),
    ...['/api/v1/progress', '/healthz', '/openapi.json'].map(
      (path) => [path, 'GET, HEAD', ['POST', 'PUT', 'DELETE', 'PATCH', 'OPTIONS']] as const,
    ),
  ])('%s takes %s only: 405 with Allow for other methods', async (path, allow, methods) => {
    const { api, instance } = apiUnderTest()
    for (const method of methods) {
      const response = await api.request(path, { method })
      expect([response.status, response.headers.get('allow')], method).toEqual([405, allow])
      expect(await response.json()).toMatchObject({ success: false, error: 'InvalidRequest' })
    }
    expect(instance.calls).toEqual([])
  })
})
