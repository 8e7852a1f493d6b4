import * as v from 'valibot'
import { afterEach, expect, test } from 'vitest'
import { auditAnswerSchema } from '../../src/api/audit-schema.ts'
import { type ServedApi, serveApi } from '../../src/api/server.ts'
import { RefusedError } from '../../src/domain/errors.ts'
import { apiUnderTest, minimalStart } from './recording-instance.ts'

const open: ServedApi[] = []
afterEach(async () => {
  await Promise.all(open.splice(0).map((server) => server.close()))
})

test('every command that changes something is recorded, without its body', async () => {
  const { api, post, instance } = apiUnderTest()
  await post('/api/v1/start', { ...minimalStart, includeNamespaces: [{ database: 'hidden' }] })
  for (const command of ['pause', 'resume', 'commit', 'abort', 'reverse', 'repair']) await post(`/api/v1/${command}`)
  await post('/api/v1/resync', { namespaces: [{ database: 'hidden', collection: 'hidden' }] })
  await post('/api/v1/filter', { excludeNamespaces: [{ database: 'hidden' }] })
  await api.request('/api/v1/limits', { method: 'PATCH', body: '{"readConcurrency":2}' })
  const commands = ['start', 'pause', 'resume', 'commit', 'abort', 'reverse', 'repair', 'resync', 'filter', 'limit']
  expect(instance.recorded).toMatchObject(
    commands.map((command) => ({ command, outcome: 'accepted', error: null, admitted: true })),
  )
  expect(JSON.stringify(instance.recorded)).not.toContain('hidden')
})

test('a refusal and an internal error are recorded with the name of the error', async () => {
  const { post, instance } = apiUnderTest()
  await post('/api/v1/start', { password: 'hunter2' })
  instance.answer = () => Promise.reject(new RefusedError('CannotCommit', 'not yet'))
  await post('/api/v1/commit')
  instance.answer = () => Promise.reject(new Error('hunter2'))
  await post('/api/v1/pause')
  expect(instance.recorded).toMatchObject([
    { command: 'start', outcome: 'refused', error: 'InvalidRequest', admitted: true },
    { command: 'commit', outcome: 'refused', error: 'CannotCommit', admitted: true },
    { command: 'pause', outcome: 'refused', error: 'InternalError', admitted: true },
  ])
  expect(JSON.stringify(instance.recorded)).not.toContain('hunter2')
})

test('a command is recorded before it is carried out, and its outcome afterwards under the same id', async () => {
  const { post, instance } = apiUnderTest()
  let before: unknown[] = []
  instance.answer = async () => {
    before = [...instance.received]
  }
  await post('/api/v1/commit')
  expect(before).toMatchObject([{ command: 'commit', token: 'none' }])
  expect(instance.received).toHaveLength(1)
  expect(instance.recorded).toMatchObject([{ ...instance.received[0], outcome: 'accepted' }])
})

test('a command that the host guard refuses is logged, but not stored in the audit trail', async () => {
  const { post, instance } = apiUnderTest()
  await post('/api/v1/commit', {}, { Host: 'evil.test' })
  await post('/api/v1/commit', {}, { Origin: 'http://evil.test' })
  expect(instance.recorded).toMatchObject([
    { command: 'commit', outcome: 'refused', error: 'InvalidRequest', admitted: false },
    { command: 'commit', outcome: 'refused', error: 'InvalidRequest', admitted: false },
  ])
})

test('reads and unknown commands are not recorded', async () => {
  const { get, post, instance } = apiUnderTest()
  for (const path of ['progress', 'audit', 'limits', 'start', 'commit']) await get(`/api/v1/${path}`)
  for (const path of ['check', 'limit', 'nowhere', 'commit/']) await post(`/api/v1/${path}`, minimalStart)
  expect(instance.recorded).toEqual([])
})

test('an entry has the address of the connection, and GET /api/v1/audit answers the newest entries first', async () => {
  const { api, instance } = apiUnderTest()
  const server = await serveApi({ api, port: 0 })
  open.push(server)
  const url = `http://127.0.0.1:${server.port}/api/v1`
  // The API ignores the address that a client claims in its headers.
  await fetch(`${url}/pause`, { method: 'POST', headers: { 'X-Forwarded-For': '9.9.9.9', Forwarded: 'for=9.9.9.9' } })
  await fetch(`${url}/resume`, { method: 'POST' })
  expect(instance.recorded.map(({ remoteAddress }) => remoteAddress)).toEqual(['127.0.0.1', '127.0.0.1'])
  const answer = (await (await fetch(`${url}/audit`)).json()) as { entries: { command: string }[] }
  expect(v.safeParse(auditAnswerSchema, answer).issues).toBeUndefined()
  expect(answer.entries.map(({ command }) => command)).toEqual(['resume', 'pause'])
})

test('GET /api/v1/audit shows which instance passed a command on', async () => {
  const { api, instance } = apiUnderTest()
  const passedOn = {
    id: 'x',
    time: '2026-01-31T09:00:00.000Z',
    mongosyncID: 'b',
    command: 'pause',
    remoteAddress: null,
    token: null,
    outcome: 'accepted',
    error: null,
  } as const
  instance.audit = async () => [{ ...passedOn, sender: 'a' }, { ...passedOn, sender: null }, passedOn]
  const answer = (await (await api.request('/api/v1/audit')).json()) as { entries: object[] }
  expect(v.safeParse(auditAnswerSchema, answer).issues).toBeUndefined()
  const { id: _, ...shown } = passedOn
  expect(answer.entries).toEqual([{ ...shown, sender: 'a' }, { ...shown, sender: null }, shown])
})
