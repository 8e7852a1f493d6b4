import { setTimeout as sleep } from 'node:timers/promises'
import type { Document, MongoClient } from 'mongodb'
import { expect, test, vi } from 'vitest'
import { canCommit } from '../support/commits.ts'
import { compareBoth } from '../support/compare-both.ts'
import { convergencesOf } from '../support/lost-history.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync } from '../support/tandem-process.ts'

/**
 * The instance dies while it plans a new filter. Meanwhile clients write to collections that stay in the sync, leave it
 * and enter it.
 */

const pair = pairedSets()
const steps = ['replan', 'replanFilter', 'replanCollections', 'replanDefinitions', 'replanEnd'] as const

interface Row extends Document {
  _id: number | string
}

const app = (client: MongoClient) => client.db('app')
const named = (...collections: string[]) => ({ includeNamespaces: [{ database: 'app', collections }] })

async function write(stopped: AbortSignal): Promise<void> {
  for (let at = 0; !stopped.aborted; at++) {
    for (const name of ['kept', 'left', 'included', 'renamed']) {
      const collection = app(pair.sourceClient).collection<Row>(name)
      await collection.updateOne({ _id: at % 300 }, { $inc: { n: 1 } }, { upsert: true })
      await collection.deleteOne({ _id: (at * 7) % 300 })
    }
    await sleep(2)
  }
}

test.each(steps.map((step, at) => [step, at % 2 === 1] as const))(
  'an instance that is killed at %s continues by itself (dropExcluded: %s), and the selected collections become equal',
  async (step, drops) => {
    const [source, destination] = [app(pair.sourceClient), app(pair.destinationClient)]
    for (const name of ['kept', 'left', 'included']) {
      const rows = Array.from({ length: 300 }, (_, _id): Row => ({ _id, n: 0 }))
      await source.collection<Row>(name).insertMany(rows)
      await source.collection(name).createIndex({ n: 1, _id: 1 }, { name: 'one', unique: true })
    }
    await source.createCollection('left view', { viewOn: 'left', pipeline: [] })
    await destination.collection<Row>('included').insertMany([{ _id: 1, n: 'other' }, { _id: 'extra' }])
    const first = await pair.startInstance()
    await startSync(first, named('kept', 'left', 'left view'))
    await canCommit(first)
    await first.stop()

    await using faulty = await pair.startInstance({ faults: { crashAt: step } })
    await faulty.waitFor(({ state }) => state === 'RUNNING', { timeoutSeconds: 60, what: 'RUNNING' })
    const stopped = new AbortController()
    const written = write(stopped.signal)
    written.catch(() => {}) // the code that awaits it handles the error
    const filter = { ...named('kept', 'included', 'renamed'), dropExcluded: drops }
    await faulty.post('filter', filter).catch(() => {}) // the instance may die before it answers
    await vi.waitFor(() => expect(faulty.isRunning()).toBe(false), { timeout: 60_000, interval: 50 })
    await using last = await pair.startInstance()
    await canCommit(last)
    stopped.abort()
    await written
    await canCommit(last)
    expect(await last.post('commit')).toMatchObject({ status: 200 })
    await last.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'COMMITTED' })
    const selects = (database: string, name: string) =>
      database === 'app' && ['kept', 'included', 'renamed'].includes(name)
    const { differences } = await compareBoth(pair.source.uri, pair.destination.uri, { selects })
    expect(differences).toEqual([])
    const others = (await destination.listCollections({}, { nameOnly: true }).toArray()).map(({ name }) => name)
    expect(others.includes('left')).toBe(!drops)
    expect(others.includes('left view')).toBe(!drops)
    if (!drops) {
      const indexes = await destination.collection('left').listIndexes().toArray()
      expect(indexes).toMatchObject([{ name: '_id_' }, { name: 'one', unique: true }])
    }
    expect(await convergencesOf(pair.destinationClient)).toBe(1)
  },
)
