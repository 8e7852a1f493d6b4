import { setTimeout as delay } from 'node:timers/promises'
import { startSync, startTandem, type Tandem } from '../test/support/tandem-process.ts'
import { assertSameHash, countOf } from './content.ts'
import { load, type Shape } from './load.ts'
import { startMeter, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { empty, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import type { BenchOptions } from './tandem-run.ts'

const pollMS = 10
/** Requests for progress cost CPU, which this bench measures. So it polls no more often than a person does. */
const progressPollMS = 500
/**
 * This bench copies this many times the shape's documents. The CPU that a process uses at its start to read and compile
 * its code is then small compared with that of the copy.
 */
const documentFactor = 2

interface Effort {
  seconds: number
  cpu: number
  serversCpu: number
  /** The smallest share of all bytes, from 0 to 1, that one of the instances copied; 1 for a single instance. */
  smallestShare: number
}

/**
 * Runs the same copy with one instance and with two on the same machine. Measures the cost of sharing the work, and how
 * evenly the instances share it.
 */
export async function benchInstances(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale * documentFactor) }
  await using pair = await startPair(options)
  await load(pair.source, shape)
  const efforts: Effort[][] = [[], []]
  for (let run = 0; run < options.runs; run++) {
    for (const count of run % 2 === 0 ? [1, 2] : [2, 1]) {
      await empty(pair.destination)
      await warmCache(pair.source)
      await waitUntilIdle(pair)
      const effort = await copyWith(count, pair)
      const copied = await countOf(pair.destination, ['c0'])
      if (copied !== shape.documents)
        throw new Error(`${count} instances copied ${copied} of ${shape.documents} documents`)
      process.stderr.write(`  ${count} instances: ${effort.seconds.toFixed(2)} s, ${effort.cpu.toFixed(2)} s of CPU\n`)
      efforts[count - 1]?.push(effort)
    }
    await assertSameHash(pair)
  }
  const [one, two] = efforts.map((runs) => summaryOfRuns(runs)) as [Effort, Effort]
  const figures = {
    documents: shape.documents,
    'ratio of CPU, two instances to one': two.cpu / one.cpu,
    'smallest share of bytes %': two.smallestShare * 100,
    'one s': one.seconds,
    'two s': two.seconds,
    'one CPU s': one.cpu,
    'two CPU s': two.cpu,
    'servers CPU s, one': one.serversCpu,
    'servers CPU s, two': two.serversCpu,
  }
  const targets = {
    'ratio of CPU, two instances to one': { atMost: 1.25 },
    'smallest share of bytes %': { atLeast: 40 },
  }
  return { figures, misses: missesOf(figures, targets) }
}

async function copyWith(count: number, { source, destination }: Pair): Promise<Effort> {
  const clusters = { cluster0: source.uri, cluster1: destination.uri }
  const instances = await Promise.all(
    Array.from({ length: count }, (_, at) => startTandem({ ...clusters, id: `instance${at}` })),
  )
  try {
    await Promise.all(instances.map(untilReady))
    const pids = Object.fromEntries(instances.map(({ pid }, at) => [`tandem${at}`, pid]))
    const stop = startMeter({ ...pids, source: source.pid, destination: destination.pid })
    await Promise.all(instances.map((instance) => startSync(instance, { verification: { enabled: false } })))
    await Promise.all(instances.map(untilCopied))
    const used = stop() as Record<string, number>
    const copies = await Promise.all(instances.map(async (instance) => (await instance.progress()).collectionCopy))
    const shares = copies.map((copy) => (copy?.estimatedCopiedBytes ?? 0) / (copy?.estimatedTotalBytes ?? 1))
    return {
      seconds: used['wall'] ?? Number.NaN,
      cpu: instances.reduce((sum, _, at) => sum + (used[`tandem${at}`] ?? 0), 0),
      serversCpu: (used['source'] ?? 0) + (used['destination'] ?? 0),
      smallestShare: Math.min(...shares),
    }
  } finally {
    await Promise.all(instances.map((instance) => instance.stop()))
  }
}

async function untilCopied(instance: Tandem): Promise<void> {
  for (;;) {
    const { canCommit, state, failure } = await instance.progress()
    if (canCommit) return
    if (state === 'FAILED') throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${instance.output()}`)
    await delay(progressPollMS)
  }
}

async function untilReady(instance: Tandem): Promise<void> {
  while (!(await instance.progress().catch(() => null))) await delay(pollMS)
}
