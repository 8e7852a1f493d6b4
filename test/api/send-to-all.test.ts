import { describe, expect, test } from 'vitest'
import { plainCommit } from '../../src/domain/commit-request.ts'
import { peerCommands } from '../../src/domain/peer-command.ts'
import { apiUnderTest } from './recording-instance.ts'

describe.each(peerCommands)('POST /api/v1/all/%s', (command) => {
  const path = `/api/v1/all/${command}`

  test('passes the command on, and answers success when all instances have accepted it', async () => {
    const { post, instance } = apiUnderTest()
    instance.peerAnswers = [
      ['a', { success: true }],
      ['b', { success: true }],
    ]
    const reply = await post(path, {})
    const request = command === 'commit' ? { request: plainCommit } : {}
    expect(instance.calls).toEqual([{ command: `all ${command}`, ...request }])
    expect(reply.status).toBe(200)
    expect(reply.body).toEqual({ success: true, answers: { a: { success: true }, b: { success: true } } })
  })

  test('refuses unknown fields, and accepts only POST', async () => {
    const { post, get, instance } = apiUnderTest()
    expect((await post(path, { force: true })).body).toMatchObject({ success: false, error: 'InvalidRequest' })
    expect(await get(path)).toMatchObject({ status: 405 })
    expect(instance.calls).toEqual([])
  })
})

test('if one instance refuses, the answer is a failure that names the instance and still contains every answer', async () => {
  const { post, instance } = apiUnderTest()
  const refused = { success: false, error: 'WrongState', errorDescription: 'pause is accepted in RUNNING' } as const
  const silent = { success: false, error: 'NoAnswer', errorDescription: 'has not taken the command' } as const
  instance.peerAnswers = [
    ['a', { success: true }],
    ['b', refused],
    ['c', silent],
  ]
  expect(await post('/api/v1/all/pause')).toMatchObject({
    status: 409,
    body: {
      success: false,
      error: 'WrongState',
      errorDescription: 'b: pause is accepted in RUNNING',
      lost: 'nothing',
      docs: 'docs/troubleshooting.md#wrongstate',
      answers: {
        a: { success: true },
        b: { ...refused, lost: 'nothing', docs: 'docs/troubleshooting.md#wrongstate' },
        c: { ...silent, lost: 'nothing', docs: 'docs/troubleshooting.md#noanswer' },
      },
    },
  })
  expect(instance.recorded).toMatchObject([{ command: 'all/pause', outcome: 'refused', error: 'WrongState' }])
})
