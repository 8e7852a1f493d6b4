import type { IndexDescription } from 'mongodb'
import { assertSameHash } from './content.ts'
import { load } from './load.ts'
import { startMeter, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, type Server, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const collections = 20
const documents = 500
/**
 * Numbers of indexes of each collection besides the index on `_id`. All collections together then have 20, 200 and 1,000
 * such indexes. A collection can have at most 64.
 */
const counts = [1, 10, 50]

interface Effort {
  seconds: number
  cpu: number
  directSeconds: number
}

/**
 * Measures what each index of the same collections adds to a sync. For comparison, it creates the same indexes directly, one
 * collection after the other.
 */
export async function benchManyIndexes(options: BenchOptions): Promise<Measured> {
  const efforts: Effort[] = []
  await using pair = await startPair(options)
  await load(pair.source, { name: '1k', title: '', collections, documents, documentBytes: 1_024 })
  const none = summaryOfRuns(await effortsOf(pair, options, 0))
  for (const count of counts) {
    for (let number = 0; number < collections; number++) {
      await pair.source.client.db(database).collection(`c${number}`).createIndexes(indexes(count))
    }
    efforts.push(summaryOfRuns(await effortsOf(pair, options, count)))
  }
  const figures: Record<string, number> = { 'without indexes: s': none.seconds }
  const each = counts.map((count, at) => {
    const { seconds, cpu, directSeconds } = efforts[at] as Effort
    const total = count * collections
    figures[`${total}: s`] = seconds
    figures[`${total}: ms for each`] = ((seconds - none.seconds) / total) * 1000
    figures[`${total}: direct ms for each`] = (directSeconds / total) * 1000
    figures[`${total}: tandem CPU ms for each`] = ((cpu - none.cpu) / total) * 1000
    return (seconds - none.seconds) / total
  })
  figures['ratio of time per index, most to fewest'] = (each.at(-1) ?? Number.NaN) / (each[0] ?? Number.NaN)
  return { figures, misses: missesOf(figures, { 'ratio of time per index, most to fewest': { atMost: 1.3 } }) }
}

const indexes = (count: number): IndexDescription[] =>
  Array.from({ length: count }, (_, at) => ({ key: { number: 1, [`field${at}`]: 1 }, name: `index${at}` }))

async function effortsOf(pair: Pair, options: BenchOptions, count: number): Promise<Effort[]> {
  const runs: Effort[] = []
  for (let run = 0; run < options.runs; run++) {
    const directSeconds = count === 0 ? 0 : await createDirectly(pair, count)
    await empty(pair.destination)
    await waitUntilIdle(pair)
    await using tandem = await startReady(pair, options)
    const stop = startMeter({ cpu: tandem.pid })
    await syncUntilCanCommit(tandem)
    const { wall, cpu } = stop()
    await assertSameHash(pair)
    const actual = await indexCount(pair.destination)
    if (actual !== (count + 1) * collections)
      throw new Error(`the destination has ${actual} indexes, not ${(count + 1) * collections}`)
    runs.push({ seconds: wall, cpu, directSeconds })
    process.stderr.write(
      `  ${count * collections}: direct ${directSeconds.toFixed(2)} s, tandem ${wall.toFixed(2)} s\n`,
    )
  }
  return runs
}

/** Creates the indexes as tandem does: while the collections are empty, with one command for all indexes of a collection. */
async function createDirectly(pair: Pair, count: number): Promise<number> {
  const { destination } = pair
  await empty(destination)
  await waitUntilIdle(pair)
  const began = performance.now()
  for (let number = 0; number < collections; number++) {
    await destination.client.db(database).createCollection(`c${number}`)
    await destination.client.db(database).collection(`c${number}`).createIndexes(indexes(count))
  }
  return (performance.now() - began) / 1000
}

async function indexCount({ client }: Server): Promise<number> {
  const names = Array.from({ length: collections }, (_, number) => `c${number}`)
  const lists = await Promise.all(names.map((name) => client.db(database).collection(name).indexes()))
  return lists.flat().length
}
