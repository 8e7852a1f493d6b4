import type { MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/** The number of commands that tandem sends for each collection does not grow, and few commands list a whole database. */

const pair = pairedSets()
const collections = 300
const documents = 2
/** Commands that do not depend on the number of collections, such as the creation of the metadata's collections. */
const constant = 20

const kinds = ['listCollections', 'listIndexes', 'create', 'insert'] as const
type Counts = Record<(typeof kinds)[number] | 'aggregate', number>

async function countsOf(client: MongoClient): Promise<Counts> {
  const { metrics } = await client.db('admin').command({ serverStatus: 1 })
  const total = (name: string): number => Number(metrics.commands[name]?.total ?? 0)
  return Object.fromEntries([...kinds, 'aggregate'].map((kind) => [kind, total(kind)])) as Counts
}

async function sentDuring(client: MongoClient, before: Counts): Promise<Counts> {
  const after = await countsOf(client)
  return Object.fromEntries(
    Object.entries(after).map(([kind, count]) => [kind, count - before[kind as keyof Counts]]),
  ) as Counts
}

it('copies and verifies many collections with a fixed number of commands for each', async () => {
  const source = pair.sourceClient.db('app')
  for (let from = 0; from < collections; from += 10) {
    const some = Array.from({ length: 10 }, (_, at) => source.collection(`c${from + at}`))
    await Promise.all(some.map((one) => one.insertMany(Array.from({ length: documents }, (_, n) => ({ n })))))
  }
  await using tandem = await pair.startInstance()
  const before = { source: await countsOf(pair.sourceClient), destination: await countsOf(pair.destinationClient) }
  await startSync(tandem, { verification: { enabled: true } })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 120, what: 'ready to commit' })
  const onSource = await sentDuring(pair.sourceClient, before.source)
  const onDestination = await sentDuring(pair.destinationClient, before.destination)

  // `canCommit` says that the verifier has compared every document.
  expect(await pair.destinationClient.db('app').listCollections().toArray()).toHaveLength(collections)
  expect(onDestination.create).toBeLessThanOrEqual(collections + constant)
  expect(onSource.listIndexes).toBeLessThanOrEqual(collections + constant)
  // One command to plan the copy, and one to count the documents.
  expect(onSource.aggregate).toBeLessThanOrEqual(2 * collections + constant)
  // Neither grows with the number of collections.
  expect(onSource.listCollections).toBeLessThanOrEqual(constant)
  expect(onDestination.listCollections).toBeLessThanOrEqual(constant)
  expect(onDestination.listIndexes).toBeLessThanOrEqual(constant)
})
