import { expect, test } from 'vitest'
import { compareBoth } from '../support/compare-both.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** Two indexes conflict while `unique` is deferred. tandem builds the second one at the end of the commit. */

const pair = pairedSets()

test('a conflicting index has all its options when the sync is COMMITTED', async () => {
  const db = pair.sourceClient.db('app')
  await db.collection<{ _id: number }>('things').insertOne({ _id: 1 })
  await db.collection('things').createIndexes([
    { key: { a: 1 }, name: 'unique', unique: true },
    { key: { a: 1 }, name: 'second, expiring', expireAfterSeconds: 3_600 },
    { key: { b: 1 }, name: 'another unique', unique: true },
    { key: { b: 1 }, name: 'second, prepared' },
    { key: { c: 1 }, name: 'a third unique', unique: true },
    { key: { c: 1 }, name: 'second, hidden', hidden: true },
  ])
  await db.command({ collMod: 'things', index: { name: 'second, prepared', prepareUnique: true } })
  await using tandem = await pair.startInstance()
  await startSync(tandem, { verification: { enabled: true } })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  await tandem.post('commit')
  await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'COMMITTED' })
  const { differences } = await compareBoth(pair.source.uri, pair.destination.uri)
  expect(differences).toEqual([])
  const indexes = await pair.destinationClient.db('app').collection('things').indexes()
  const byName = new Map(indexes.map((index) => [index.name, index]))
  expect(byName.get('second, expiring')).toMatchObject({ expireAfterSeconds: 3_600 })
  expect(byName.get('second, prepared')).toMatchObject({ prepareUnique: true })
  expect(byName.get('second, hidden')).toMatchObject({ hidden: true })
})
