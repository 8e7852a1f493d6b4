import { setTimeout as delay } from 'node:timers/promises'
import type { InstancesReport } from '../src/domain/instances.ts'
import { startSync, type Tandem } from '../test/support/tandem-process.ts'
import { startChild } from './child.ts'
import { assertSameHash, countOf } from './content.ts'
import { load, type Shape } from './load.ts'
import { startMeter, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, type Server, startPair, waitUntilIdle, warmCache } from './servers.ts'
import type { SteadyWriterInput } from './steady-writer.ts'
import { type BenchOptions, startInstances } from './tandem-run.ts'

const steady = 'steady'
const operationsPerSecond = 500
const followingSeconds = 30
/** How long the instances are idle before the measurement without load begins, ms, and how long it takes, s. */
const settleMS = 10_000
const idleSeconds = 60
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
  /** CPU seconds of all instances while they follow a steady load. */
  followingCpu: number
  /** CPU of the coordinator without any load, in per cent of a core, and the largest of the other instances. */
  idleCoordinator: number
  idleOther: number
  /** Requests to the destination per second and instance without any load. */
  idleRequests: number
  /** The smallest share of all bytes, from 0 to 1, that one of the instances copied; 1 for a single instance. */
  smallestShare: number
}

/**
 * Runs the same copy, and then follows the same load, with one instance and with two on the same machine. Measures the
 * cost of sharing the work, how evenly the instances share it, and what an instance costs that has nothing to do.
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
      const effort = await copyWith(count, pair, options)
      const copied = await countOf(pair.destination, ['c0'])
      if (copied !== shape.documents)
        throw new Error(`${count} instances copied ${copied} of ${shape.documents} documents`)
      process.stderr.write(
        `  ${count} instances: copy ${effort.seconds.toFixed(2)} s, ${effort.cpu.toFixed(2)} s of CPU, following ${effort.followingCpu.toFixed(2)} s, idle ${effort.idleCoordinator.toFixed(2)} %\n`,
      )
      efforts[count - 1]?.push(effort)
    }
    await assertSameHash(pair)
  }
  const [one, two] = efforts.map((runs) => summaryOfRuns(runs)) as [Effort, Effort]
  const figures = {
    documents: shape.documents,
    'ratio of CPU, two instances to one': (two.cpu + two.followingCpu) / (one.cpu + one.followingCpu),
    'ratio of CPU, copy alone': two.cpu / one.cpu,
    'ratio of CPU, following alone': two.followingCpu / one.followingCpu,
    'idle coordinator, CPU %': two.idleCoordinator,
    'idle other instance, CPU %': two.idleOther,
    'idle single instance, CPU %': one.idleCoordinator,
    'idle, requests to the destination per second and instance': two.idleRequests,
    'smallest share of bytes %': two.smallestShare * 100,
    'one s': one.seconds,
    'two s': two.seconds,
    'one CPU s, copy': one.cpu,
    'two CPU s, copy': two.cpu,
    'one CPU s, following': one.followingCpu,
    'two CPU s, following': two.followingCpu,
    'servers CPU s, one': one.serversCpu,
    'servers CPU s, two': two.serversCpu,
  }
  const targets = {
    'ratio of CPU, two instances to one': { atMost: 1.2 },
    'idle coordinator, CPU %': { atMost: 1 },
    'idle other instance, CPU %': { atMost: 1 },
    'smallest share of bytes %': { atLeast: 40 },
  }
  return { figures, misses: missesOf(figures, targets) }
}

async function copyWith(count: number, pair: Pair, options: BenchOptions): Promise<Effort> {
  const { source, destination } = pair
  await source.client.db(database).collection(steady).drop()
  await source.client.db(database).createCollection(steady)
  const instances = await startInstances(count, pair, options)
  const cpuOf = (used: Record<string, number>): number[] => instances.map((_, at) => used[`tandem${at}`] ?? Number.NaN)
  try {
    const pids = Object.fromEntries(instances.map(({ pid }, at) => [`tandem${at}`, pid]))
    const stop = startMeter({ ...pids, source: source.pid, destination: destination.pid })
    await Promise.all(instances.map((instance) => startSync(instance, { verification: { enabled: false } })))
    await Promise.all(instances.map(untilCopied))
    const copied: Record<string, number> = stop()
    const copies = await Promise.all(instances.map(async (instance) => (await instance.progress()).collectionCopy))
    const shares = copies.map((copy) => (copy?.estimatedCopiedBytes ?? 0) / (copy?.estimatedTotalBytes ?? 1))
    const writing: SteadyWriterInput = {
      ...{ uri: source.uri, database, collection: steady, operationsPerSecond, seconds: followingSeconds },
    }
    await using writer = await startChild('steady-writer', writing)
    const stopFollowing = startMeter(pids)
    await writer.go()
    const following: Record<string, number> = stopFollowing()
    await delay(settleMS)
    const requests = await requestsOf(destination)
    const stopIdle = startMeter(pids)
    await delay(idleSeconds * 1_000)
    const idle: Record<string, number> = stopIdle()
    const idleRequests = ((await requestsOf(destination)) - requests) / count / idleSeconds
    const percents = cpuOf(idle).map((seconds) => (100 * seconds) / (idle['wall'] as number))
    const leader = await coordinatorOf(instances)
    return {
      seconds: copied['wall'] ?? Number.NaN,
      cpu: sum(cpuOf(copied)),
      serversCpu: (copied['source'] ?? 0) + (copied['destination'] ?? 0),
      followingCpu: sum(cpuOf(following)),
      idleCoordinator: percents[leader] ?? Number.NaN,
      idleOther: Math.max(...percents.filter((_, at) => count === 1 || at !== leader)),
      idleRequests,
      smallestShare: Math.min(...shares),
    }
  } finally {
    await Promise.all(instances.map((instance) => instance.stop()))
  }
}

const sum = (values: readonly number[]): number => values.reduce((total, value) => total + value, 0)

/** Returns the position of the coordinator among the instances. */
async function coordinatorOf(instances: readonly Tandem[]): Promise<number> {
  const response = await fetch(`${instances[0]?.url}/api/v1/instances`)
  const report = (await response.json()) as InstancesReport
  const leader = report.instances.find(({ coordinator }) => coordinator)
  return instances.findIndex((_, at) => leader?.mongosyncID === `instance${at}`)
}

/** Returns the number of requests that the server has received from all clients. */
async function requestsOf({ client }: Server): Promise<number> {
  const { network } = await client.db('admin').command({ serverStatus: 1 })
  return Number(network.numRequests)
}

async function untilCopied(instance: Tandem): Promise<void> {
  for (;;) {
    const { canCommit, state, failure } = await instance.progress()
    if (canCommit) return
    if (state === 'FAILED') throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${instance.output()}`)
    await delay(progressPollMS)
  }
}
