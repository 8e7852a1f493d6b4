import { MongoServerError } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { addCircumstances } from '../../src/domain/circumstances.ts'
import { errorDetails } from '../../src/domain/error-details.ts'
import { FatalError, RefusedError } from '../../src/domain/errors.ts'

/** Tests docs/api.md: what an answer says about an error in addition to its name and description. */

const serverError = () =>
  new MongoServerError({ message: 'not authorized on a: "secret"', code: 13, codeName: 'Unauthorized' })

describe('the details of an error', () => {
  test('have the cluster, the code name and the text of the server error that caused it', () => {
    const cause = serverError()
    addCircumstances(cause, { cluster: 'cluster1', command: 'find', namespace: 'app.things' })
    expect(errorDetails('MissingPrivileges', new FatalError('MissingPrivileges', 'grant it', { cause }))).toEqual({
      cluster: 'cluster1',
      codeName: 'Unauthorized',
      lastError: 'find on cluster1, app.things: Unauthorized (13): not authorized on a: "…"',
      lost: 'nothing',
      docs: 'docs/troubleshooting.md#missingprivileges',
    })
  })

  test('name the cluster of tandem’s own error, and show a server code without a name as Location<code>', () => {
    const cause = new MongoServerError({ message: 'no', code: 16755 })
    const error = new FatalError('DocumentRefused', 'a document', { cause })
    addCircumstances(error, { cluster: 'cluster0' })
    expect(errorDetails('DocumentRefused', new RefusedError('WrongState', 'outer', { cause: error }))).toMatchObject({
      cluster: 'cluster0',
      codeName: 'Location16755',
      lastError: 'Location16755 (16755): no',
    })
  })

  test('have no code name for an error of the network', () => {
    const cause = Object.assign(new Error('connect ECONNREFUSED 127.0.0.1:1'), { code: 'ECONNREFUSED' })
    addCircumstances(cause, { cluster: 'cluster0' })
    expect(errorDetails('ClusterUnreachable', new RefusedError('ClusterUnreachable', 'x', { cause }))).toEqual({
      cluster: 'cluster0',
      lastError: 'connect ECONNREFUSED 127.0.0.1:1',
      lost: 'nothing',
      docs: 'docs/troubleshooting.md#clusterunreachable',
    })
  })

  test('show no user and no password', () => {
    const cause = new Error('connecting to mongodb://root:hunter2@db.test:1 failed')
    addCircumstances(cause, { cluster: 'cluster0' })
    const { lastError } = errorDetails('ClusterUnreachable', new RefusedError('ClusterUnreachable', 'x', { cause }))
    expect(lastError).toBe('connecting to mongodb://***@db.test:1 failed')
  })

  test('leave out what is not known, and do not say what is lost after an unexpected error', () => {
    const nothing = { lost: 'nothing', docs: 'docs/troubleshooting.md#wrongstate' }
    expect(errorDetails('WrongState')).toEqual(nothing)
    expect(
      errorDetails('WrongState', new RefusedError('WrongState', 'not now', { cause: new Error('secret') })),
    ).toEqual(nothing)
    const unknown = { docs: 'docs/troubleshooting.md#internalerror' }
    expect(errorDetails('InternalError', new TypeError('secret'))).toEqual(unknown)
    expect(errorDetails('InternalError', null)).toEqual(unknown)
  })

  test('are found in finite time even if two errors are the cause of each other', () => {
    const one = new Error('one')
    const other = new Error('other', { cause: one })
    one.cause = other
    expect(errorDetails('WrongState', one)).toMatchObject({ lost: 'nothing' })
  })
})
