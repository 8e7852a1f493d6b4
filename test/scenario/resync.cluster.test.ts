import { expect, test } from 'vitest'
import type { CollectionRow } from '../../src/domain/collection-figures.ts'
import { commitEqual } from '../support/commit-equal.ts'
import { canCommit } from '../support/commits.ts'
import { holdCopy } from '../support/fail-point.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { corruptRows, rowsOf, seedRows } from '../support/rows.ts'
import { startSync } from '../support/tandem-process.ts'

/** A resync makes single collections of a running sync equal to the source again. */

const pair = pairedSets()

const bodyOf = (...names: string[]) => ({ namespaces: names.map((collection) => ({ database: 'app', collection })) })
const unblocked = { enableUserWriteBlocking: 'none', verification: { enabled: false } }

const seed = (...names: string[]) => seedRows(pair.sourceClient, names)

test('README: resync makes the given collections equal again, and touches no other', async () => {
  await seed('things', 'others', 'dropped')
  await using tandem = await pair.startInstance()
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  for (const name of ['things', 'others']) await corruptRows(pair.destinationClient, name)
  await rowsOf(pair.destinationClient, 'dropped').drop()

  await using held = await holdCopy(pair.destinationClient, 'app.things')
  expect(await tandem.post('resync', bodyOf('things', 'dropped', 'things'))).toMatchObject({ status: 200 })
  expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: false })
  await tandem.waitFor((progress) => progress.convergingCollections === 1, { timeoutSeconds: 60, what: 'converging' })
  const shown = await fetch(`${tandem.url}/metrics`).then((response) => response.text())
  expect(shown).toMatch(/^tandem_converging_collections 1$/m)
  const { collections } = (await fetch(`${tandem.url}/api/v1/collections`).then((response) => response.json())) as {
    collections: CollectionRow[]
  }
  expect(collections.filter(({ copy }) => copy.converging)).toMatchObject([{ namespace: 'app.things' }])
  await held.release()
  await rowsOf(pair.sourceClient, 'things').updateOne({ _id: 4 }, { $inc: { n: 1 } })
  await canCommit(tandem)
  expect(await rowsOf(pair.destinationClient, 'things').findOne({ _id: 1 })).toEqual({ _id: 1, n: 0 })
  expect(await rowsOf(pair.destinationClient, 'things').countDocuments()).toBe(500)
  expect(await rowsOf(pair.destinationClient, 'dropped').countDocuments()).toBe(500)
  expect(await rowsOf(pair.destinationClient, 'others').countDocuments()).toBe(499)
  expect(await tandem.progress()).not.toHaveProperty('convergingCollections')

  expect(await tandem.post('resync', bodyOf('others'))).toMatchObject({ status: 200 })
  await commitEqual(tandem, pair)
  expect(await convergencesOf(pair.destinationClient)).toBe(2)
})

test('a namespace that is not a collection of the sync is refused with the name of its field, and nothing changes', async () => {
  await seed('things')
  await pair.sourceClient.db('app').createCollection('view', { viewOn: 'things', pipeline: [] })
  await using tandem = await pair.startInstance()
  expect(await tandem.post('resync', bodyOf('things'))).toMatchObject({ status: 409, body: { error: 'WrongState' } })
  await startSync(tandem, unblocked)
  await canCommit(tandem)
  for (const name of ['unknown', 'view', 'system.views']) {
    const refused = await tandem.post('resync', bodyOf('things', name))
    expect(refused).toMatchObject({ status: 400, body: { error: 'InvalidRequest' } })
    expect(refused.body.errorDescription).toContain(`namespaces[1]: app.${name}`)
  }
  expect(await tandem.progress()).toMatchObject({ state: 'RUNNING', canCommit: true })
  expect(await convergencesOf(pair.destinationClient)).toBe(0)
})
