import fc from 'fast-check'
import { MongoServerError } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { addCircumstances } from '../../src/domain/circumstances.ts'
import { errorStack, errorText, unreachableText, withoutValues } from '../../src/domain/error-text.ts'
import { causeOfFailure, FatalError, toFailure } from '../../src/domain/errors.ts'
import { serverCode } from '../../src/domain/server-code.ts'

const serverError = (message: string) => new MongoServerError({ message, code: 9, codeName: 'FailedToParse' })

describe('an unexpected failure', () => {
  test('contains step, command, cluster, namespace, code and text', () => {
    const error = serverError('Unknown collMod option x')
    addCircumstances(error, { cluster: 'cluster1', command: 'collMod', namespace: 'app.things' })
    addCircumstances(error, { step: 'commit of app.things' })
    addCircumstances(error, { step: 'an outer step' })
    const failure = toFailure(error, 'preparing')
    expect(failure).toEqual({
      error: 'InternalError',
      errorDescription:
        'commit of app.things: collMod on cluster1, app.things: FailedToParse (9): Unknown collMod option x',
    })
    expect(causeOfFailure(failure)).toBe(error)
  })

  test('contains at least the step in which it occurred', () => {
    expect(toFailure(new TypeError('x is not a function'), 'preparing').errorDescription).toBe(
      'preparing: TypeError: x is not a function',
    )
  })

  test('is logged with a stack that includes the stacks of its causes', () => {
    const error = new FatalError('DuplicateKey', 'outer', { cause: serverError('dup key: { x: "secret" }') })
    const stack = errorStack(error)
    expect(stack).toMatch(/^FatalError: outer\n {4}at [\s\S]+\ncaused by MongoServerError: dup key: \{…\}\n {4}at /)
    expect(stack).not.toContain('secret')
  })
})

test('the text of a failure names the cluster that does not answer, and the driver’s last error', () => {
  const error = new Error('connect ECONNREFUSED 127.0.0.1:1')
  addCircumstances(error, { cluster: 'cluster1', command: 'find', namespace: 'a.b' })
  expect(unreachableText(error)).toBe('cluster1 does not answer (connect ECONNREFUSED 127.0.0.1:1)')
  expect(unreachableText(new DOMException('aborted', 'TimeoutError'))).toBe(
    'a cluster does not answer (no answer in time)',
  )
})

describe('document values in a server error', () => {
  test('are left out if they are in braces or quotes', () => {
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

  test('are left out together with the rest of the text if the command contains documents', () => {
    const error = serverError('Index build failed: language override unsupported: secret')
    addCircumstances(error, { cluster: 'cluster1', command: 'createIndexes', namespace: 'app.things' })
    expect(errorText(error)).toBe('createIndexes on cluster1, app.things: FailedToParse (9): Index build failed')
  })
})

test('the code of a refused statement is shown with the name that the server uses for it', () => {
  expect(serverCode(11000, undefined)).toBe('DuplicateKey (11000)')
  expect(serverCode(16755, undefined)).toBe('Location16755 (16755)')
  expect(serverCode(9, 'FailedToParse')).toBe('FailedToParse (9)')
  expect(serverCode(9_999, undefined)).toBe('server error 9999')
})
