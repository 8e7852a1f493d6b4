import { setTimeout as delay } from 'node:timers/promises'
import { startSync, startTandem, type Tandem } from '../test/support/tandem-process.ts'
import { assertSameHash } from './content.ts'
import { load, type Shape } from './load.ts'
import { median } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { empty, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import type { BenchOptions } from './tandem-run.ts'

const pollMS = 20
/**
 * With this round trip to each cluster and one range at a time, an instance waits for replies most of the time, and
 * neither the clusters nor the cores of the machine are the limit.
 */
const roundTripMS = 300
const atOnce = 1
const shape: Shape = { name: '1k', title: '', collections: 1, documents: 640_000, documentBytes: 1_024 }

interface Rate {
  /** Documents of the source that all instances together compare in a second. */
  perSecond: number
  /** The smallest share of the documents that one of the instances has compared, in per cent. */
  smallestShare: number
}

/** Measures the first pass of the verifier with one instance and with two, while the clusters are not the limit. */
export async function benchSharedVerification(options: BenchOptions): Promise<Measured> {
  const documents = Math.ceil(shape.documents * options.scale)
  await using pair = await startPair({ ...options, link: { roundTripMS } })
  await load(pair.source, { ...shape, documents })
  const rates: Rate[][] = [[], []]
  for (let run = 0; run < options.runs; run++) {
    for (const count of run % 2 === 0 ? [1, 2] : [2, 1]) {
      await empty(pair.destination)
      await warmCache(pair.source)
      await waitUntilIdle(pair)
      const rate = await verifyWith(count, pair, documents)
      process.stderr.write(`  ${count} instances: ${Math.round(rate.perSecond).toLocaleString('en')} documents/s\n`)
      rates[count - 1]?.push(rate)
    }
    await assertSameHash(pair)
  }
  const [one, two] = rates.map((runs) => median(runs.map(({ perSecond }) => perSecond))) as [number, number]
  const figures = {
    documents,
    'round trip ms': roundTripMS,
    'ratio of rates, two instances to one': two / one,
    'one, documents/s': one,
    'two, documents/s': two,
    'smallest share of documents %': Math.min(...(rates[1] ?? []).map(({ smallestShare }) => smallestShare)),
  }
  const targets = { 'ratio of rates, two instances to one': { atLeast: 1.6 } }
  return { figures, misses: missesOf(figures, targets) }
}

async function verifyWith(count: number, { source, destination }: Pair, documents: number): Promise<Rate> {
  const clusters = { cluster0: source.linkUri, cluster1: destination.linkUri }
  const instances = await Promise.all(
    Array.from({ length: count }, (_, at) => startTandem({ ...clusters, id: `instance${at}` })),
  )
  try {
    for (const instance of instances) while (!(await instance.progress().catch(() => null))) await delay(pollMS)
    await Promise.all(instances.map((instance) => startSync(instance, { verification: { enabled: true } })))
    await Promise.all(instances.map((instance) => until(instance, ({ phase }) => phase !== 'not started')))
    // Not earlier, because the limit applies to the copy too.
    await Promise.all(instances.map(limitReads))
    const [first] = instances as [Tandem]
    const before = (await first.progress()).verification?.source.hashedDocumentCount ?? 0
    const began = performance.now()
    await until(first, ({ phase }) => phase === 'stream hashing')
    const seconds = (performance.now() - began) / 1_000
    // What an instance reports about another one is up to a second old.
    const compared = await Promise.all(instances.map(async (one) => (await one.progress()).comparedDocumentCount ?? 0))
    return {
      perSecond: (documents - before) / seconds,
      smallestShare: (100 * Math.min(...compared)) / documents,
    }
  } finally {
    await Promise.all(instances.map((instance) => instance.stop()))
  }
}

async function limitReads({ url }: Tandem): Promise<void> {
  const response = await fetch(`${url}/api/v1/limits`, {
    method: 'PATCH',
    body: JSON.stringify({ readConcurrency: atOnce }),
  })
  if (response.status !== 200) throw new Error(`the limit was refused: ${await response.text()}`)
}

async function until(instance: Tandem, isReached: (source: { phase: string }) => boolean): Promise<void> {
  for (;;) {
    const { verification, state, failure } = await instance.progress()
    if (verification && isReached(verification.source)) return
    if (state === 'FAILED') throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${instance.output()}`)
    await delay(pollMS)
  }
}
