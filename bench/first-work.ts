import { setTimeout as delay } from 'node:timers/promises'
import { startSync, startTandem } from '../test/support/tandem-process.ts'
import { summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, startPair, waitUntilIdle } from './servers.ts'
import { type BenchOptions, startReady } from './tandem-run.ts'

const collection = 'first'
const documents = 1_000
const pollMS = 2
/** Seconds that a restart may take in addition to its round trips, to load the program and to read the stored state. */
const restartSeconds = 3

/**
 * Measures the time from a start until the first document is copied, and from a restart until the first event is applied.
 * With `--rtt`, it also converts both to round trips. The longer a round trip is, the less the machine's own time counts.
 */
export async function benchStart(options: BenchOptions): Promise<Measured> {
  await using pair = await startPair(options)
  const { roundTripMS } = options.link
  const all: Record<string, number>[] = []
  for (let run = 0; run < options.runs; run++) {
    for (const server of [pair.source, pair.destination]) await empty(server)
    const measured = await measure(pair, options)
    const trips = (seconds: number): number => (roundTripMS ? (seconds * 1_000) / roundTripMS : Number.NaN)
    all.push({
      ...measured,
      'round trips to the first document': trips(measured['first document s']),
      'round trips to the first event after 3 s': trips(measured['first event s'] - restartSeconds),
    })
  }
  const figures = summaryOfRuns(all)
  const targets = {
    'round trips to the first document': { atMost: 25 },
    'round trips to the first event after 3 s': { atMost: 20 },
  }
  return { figures, misses: missesOf(figures, targets) }
}

async function measure(pair: Pair, options: BenchOptions) {
  const { source, destination } = pair
  const from = source.client.db(database).collection<{ _id: number }>(collection)
  const copied = destination.client.db(database).collection<{ _id: number }>(collection)
  await from.insertMany(Array.from({ length: documents }, (_, _id) => ({ _id, text: 'x'.repeat(300) })))
  await from.createIndexes([{ key: { text: 1 } }])
  await waitUntilIdle(pair)
  const until = async (_id: number): Promise<void> => {
    while (!(await copied.findOne({ _id }))) await delay(pollMS)
  }
  let began = 0
  const seconds = (): number => (performance.now() - began) / 1_000
  let firstDocument = Number.NaN
  {
    await using tandem = await startReady(pair, options)
    began = performance.now()
    const started = startSync(tandem)
    started.catch(() => {})
    await until(0)
    firstDocument = seconds()
    await started
    const what = 'the copy to end'
    await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 600, what })
    await tandem.kill9()
  }
  await from.insertOne({ _id: documents })
  began = performance.now()
  await using again = await startTandem({ cluster0: source.linkUri, cluster1: destination.linkUri })
  await until(documents)
  const firstEvent = seconds()
  await again.kill9()
  return { 'first document s': firstDocument, 'first event s': firstEvent }
}
