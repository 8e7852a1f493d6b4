import fc from 'fast-check'
import { MongoServerError } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { addCircumstances } from '../../src/domain/circumstances.ts'
import { errorStack, errorText, unreachableText, withoutValues } from '../../src/domain/error-text.ts'
import { causeOfFailure, FatalError, toFailure } from '../../src/domain/errors.ts'

const serverError = (message: string) => new MongoServerError({ message, code: 9, codeName: 'FailedToParse' })

describe('an unforeseen failure', () => {
  test('names step, command, cluster, namespace, code and text', () => {
    const error = serverError('Unknown collMod option x')
    addCircumstances(error, { cluster: 'cluster1', command: 'collMod', namespace: 'app.things' })
    addCircumstances(error, { step: 'commit of app.things' })
    addCircumstances(error, { step: 'what is around it' })
    const failure = toFailure(error, 'preparing')
    expect(failure).toEqual({
      error: 'InternalError',
      errorDescription:
        'commit of app.things: collMod on cluster1, app.things: FailedToParse (9): Unknown collMod option x',
    })
    expect(causeOfFailure(failure)).toBe(error)
  })

  test('names at least the state it ended', () => {
    expect(toFailure(new TypeError('x is not a function'), 'preparing').errorDescription).toBe(
      'preparing: TypeError: x is not a function',
    )
  })

  test('has a stack that goes back to its first cause', () => {
    const error = new FatalError('DuplicateKey', 'outer', { cause: serverError('dup key: { x: "secret" }') })
    const stack = errorStack(error)
    expect(stack).toMatch(/^FatalError: outer\n {4}at [\s\S]+\ncaused by MongoServerError: dup key: \{…\}\n {4}at /)
    expect(stack).not.toContain('secret')
  })
})

test('a cluster that does not answer is named, with the driver’s last error', () => {
  const error = new Error('connect ECONNREFUSED 127.0.0.1:1')
  addCircumstances(error, { cluster: 'cluster1', command: 'find', namespace: 'a.b' })
  expect(unreachableText(error)).toBe('cluster1 does not answer (connect ECONNREFUSED 127.0.0.1:1)')
  expect(unreachableText(new DOMException('aborted', 'TimeoutError'))).toBe(
    'a cluster does not answer (no answer in time)',
  )
})

describe('values of documents', () => {
  test('that stand in braces or quotes are left out', () => {
    const value = fc.stringMatching(/^[^"\\{}]{1,20}$/).map((text) => `<${text}>`)
    const quoted = fc.oneof(
      value.map((text) => `"${text}"`),
      value.map((text) => `{ a: ${text} }`),
      value.map((text) => `{ a: { b: "}${text}" }, c: 1 }`),
    )
    const cutOff = fc.oneof(
      value.map((text) => `{ cut off: { ${text}`),
      value.map((text) => `"cut \\" off ${text}`),
    )
    fc.assert(
      fc.property(fc.array(quoted, { maxLength: 5 }), cutOff, (all, last) => {
        expect(withoutValues(`E11000: ${[...all, last].join(' and ')}`)).not.toContain('<')
      }),
    )
    expect(withoutValues('index x dup key: { u: "a" } at end')).toBe('index x dup key: {…} at end')
  })

  test('are left out with everything behind them where a command takes documents', () => {
    const error = serverError('Index build failed: language override unsupported: secret')
    addCircumstances(error, { cluster: 'cluster1', command: 'createIndexes', namespace: 'app.things' })
    expect(errorText(error)).toBe('createIndexes on cluster1, app.things: FailedToParse (9): Index build failed')
  })
})
