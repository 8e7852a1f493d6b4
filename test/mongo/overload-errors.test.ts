import { MongoServerError } from 'mongodb'
import { expect, it } from 'vitest'
import { isTransient, mayBeUnderWay, mayStillRun } from '../../src/mongo/errors.ts'

/** The error with which a server of 8.2 refuses a command of a client that exceeds its rate limit. */
const refused = (fields: object) =>
  new MongoServerError({
    message: 'the request rate limit was exceeded',
    codeName: 'IngressRequestRateLimitExceeded',
    ...fields,
  })

it.each([
  ['its code', { code: 462 }],
  ['its label', { code: 99_999, errorLabels: ['SystemOverloadedError', 'RetryableError'] }],
])(
  'after an overloaded server has refused a command, tandem sends the command again because of %s',
  (_what, fields) => {
    expect(isTransient(refused(fields))).toBe(true)
  },
)

it('after another error with an unknown code, the command is not sent again', () =>
  expect(isTransient(refused({ code: 99_999 }))).toBe(false))

it('a write that an overloaded replica set refuses is not in progress; a write that a router refuses may be in progress', () => {
  expect(mayBeUnderWay(refused({ code: 462 }), false)).toBe(false)
  expect([mayStillRun(462, false), mayStillRun(462, true)]).toEqual([false, true])
})
