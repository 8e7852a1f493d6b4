import type { Document, MongoClient } from 'mongodb'
import { expect, it } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { canCommit, commit } from '../support/commits.ts'
import { compareClusters } from '../support/compare.ts'
import { failPoint } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** Tests `buildIndexes` with a source that emits no index events, and with a coordinator that is killed during the builds. */

const pair = pairedSets({ source: { version: '5.0' } })

interface Row extends Document {
  _id: number | string
}

const app = (client: MongoClient, collection = 'things') => client.db('app').collection<Row>(collection)
const until = (tandem: Tandem, condition: (progress: Progress) => boolean, what: string) =>
  tandem.waitFor(condition, { timeoutSeconds: 90, what })

async function seed(): Promise<void> {
  await app(pair.sourceClient).insertMany(Array.from({ length: 100 }, (_, n) => ({ _id: n, n, u: n, h: n })))
  await app(pair.sourceClient).createIndexes([
    { key: { n: 1 } },
    { key: { u: 1 }, unique: true },
    { key: { h: 'hashed' }, name: 'hashed' },
  ])
}

const differences = async () => (await compareClusters(pair.source.uri, pair.destination.uri)).differences

it('a successor of the coordinator builds the indexes that are still missing', async () => {
  await seed()
  await using builds = await failPoint(pair.destinationClient, 'hangAfterStartingIndexBuild', {})
  await using first = await pair.startInstance({ id: 'first' })
  await startSync(first, { buildIndexes: 'afterDataCopy' })
  await using second = await pair.startInstance({ id: 'second' })
  await startSync(second, { buildIndexes: 'afterDataCopy' })
  await builds.reached()
  const { coordinatorID } = await until(second, ({ info }) => info === 'change event application', 'a copy')
  const [coordinator, other] = coordinatorID === 'first' ? [first, second] : [second, first]
  await coordinator.kill9()
  await until(other, (progress) => progress.coordinatorID !== coordinatorID, 'a new coordinator')
  expect((await other.progress()).canCommit).toBe(false)
  await builds.release()
  await commit(other)
  expect(await differences()).toEqual([])
})

it('excludeHashed leaves out hashed indexes that are created on the source after the start', async () => {
  await seed()
  await using tandem = await pair.startInstance()
  await startSync(tandem, { buildIndexes: 'excludeHashedAfterCopy' })
  await canCommit(tandem)
  await app(pair.sourceClient).createIndexes([{ key: { n: 'hashed' } }, { key: { later: 1 } }])
  await commit(tandem)
  const names = (await app(pair.destinationClient).indexes()).map(({ name }) => name).sort()
  expect(names).toEqual(['_id_', 'later_1', 'n_1', 'u_1'])
  for (const difference of await differences()) expect(difference).toMatch(/index missing on destination/)
})
