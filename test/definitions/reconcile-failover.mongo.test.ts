import { expect, it } from 'vitest'
import type { CatalogEntry } from '../../src/domain/catalog.ts'
import { isTransient } from '../../src/mongo/errors.ts'
import { destinationName, identitiesOf } from '../apply/two-clusters.ts'
import { insertRaw } from '../support/bson-values.ts'
import { failPoint } from '../support/fail-point.ts'
import {
  clusters,
  createOnBoth,
  database,
  destination,
  idElements,
  numbered,
  source,
  useTwoClusters,
} from './reconcile-fixture.ts'

/** The destination returns errors of an election or of a full disk while tandem writes documents. */

useTwoClusters()

const texts = async () =>
  (await destination().collection('c').find().sort({ _id: 1 }).toArray()).map(({ text }) => text)

/** Creates documents on the source, and old versions of some of them on the destination. */
async function outdated(): Promise<CatalogEntry> {
  await createOnBoth('c')
  await insertRaw(source(), 'c', numbered(0, 10, 'new'))
  await insertRaw(destination(), 'c', numbered(0, 5, 'old'))
  return await clusters.entryOf(database, 'c')
}

const concern = { code: 64, codeName: 'WriteConcernFailed', errmsg: 'waiting for replication timed out' }

it('a batch with duplicate keys and a write concern error fails with a transient error', async () => {
  const entry = await outdated()
  const data = { failCommands: ['insert'], appName: destinationName, writeConcernError: concern }
  await using _ = await failPoint(clusters.destinationClient, 'failCommand', data, { times: 1 })
  const inserting = clusters.dependencies.writer.insert(entry, numbered(0, 10, 'new'))
  const answer = await inserting.then(
    () => 'done',
    (error) => error,
  )
  expect(isTransient(answer), String(answer)).toBe(true)
})

it.each(['insert', 'update'])(
  'after a write concern error, an %s is sent again until a majority acknowledges it',
  async (command) => {
    const entry = await outdated()
    const data = { failCommands: [command], appName: destinationName, writeConcernError: concern }
    await using _ = await failPoint(clusters.destinationClient, 'failCommand', data, { times: 2 })
    const identities = identitiesOf(idElements(numbered(0, 10)))
    // The first five identities are written as existing documents, and the others as new documents.
    for (const [at, identity] of [...identities.values()].entries()) identity.fresh = at >= 5
    await clusters.reconcile(entry, identities)
    expect(clusters.context.retried).toHaveLength(2)
    expect(await texts()).toEqual(Array(10).fill('new'))
  },
)

it.each([
  [14_031, 'a full disk'],
  [112, 'a write conflict'],
  [189, 'a stepdown'],
  [365, 'a cache under pressure'],
  [11_602, 'an election that interrupts'],
])(
  'after error %i, %s, a write is retried until the error ends, and the retry is shown meanwhile',
  async (errorCode) => {
    const entry = await outdated()
    const data = { failCommands: ['update', 'insert'], appName: destinationName, errorCode }
    await using fault = await failPoint(clusters.destinationClient, 'failCommand', data)
    const reconciling = clusters.reconcile(entry, identitiesOf(idElements(numbered(0, 10))))
    await fault.reached()
    await expect.poll(() => clusters.context.monitor.current?.what).toContain(`${database}.c`)
    expect(await texts()).toEqual(Array(5).fill('old'))
    await fault.release()
    await reconciling
    expect(clusters.context.monitor.current).toBeUndefined()
    expect(await texts()).toEqual(Array(10).fill('new'))
  },
)
