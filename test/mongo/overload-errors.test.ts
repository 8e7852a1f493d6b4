import { MongoServerError } from 'mongodb'
import { expect, it } from 'vitest'
import { isTransient, mayBeUnderWay, mayStillRun } from '../../src/mongo/errors.ts'

/** How a server of 8.2 refuses a command of a client that exceeds its rate limit. */
const refused = (fields: object) =>
  new MongoServerError({
    message: 'the request rate limit was exceeded',
    codeName: 'IngressRequestRateLimitExceeded',
    ...fields,
  })

it.each([
  ['its code', { code: 462 }],
  ['its label', { code: 99_999, errorLabels: ['SystemOverloadedError', 'RetryableError'] }],
])('a command that an overloaded server refuses is sent again because of %s', (_what, fields) => {
  expect(isTransient(refused(fields))).toBe(true)
})

it('another error of an unknown code is not sent again', () =>
  expect(isTransient(refused({ code: 99_999 }))).toBe(false))

it('a write that a replica set refuses because of its load is not in progress; through a router it may be', () => {
  expect(mayBeUnderWay(refused({ code: 462 }), false)).toBe(false)
  expect([mayStillRun(462, false), mayStillRun(462, true)]).toEqual([false, true])
})
