import { setTimeout as delay } from 'node:timers/promises'
import { burstCollection, writersTo } from './burst.ts'
import { countOf, differencesOf } from './content.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import { keyValues } from './operations.ts'
import type { Measured } from './report.ts'
import { database, empty } from './servers.ts'
import {
  createSharded,
  type ShardedServer,
  type ShardedServers,
  startShardedServers,
  waitUntilShardsIdle,
} from './sharded-servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const operationsInFull = 20_000
const pollMS = 20
const drainPatienceMS = 300_000

interface Direct {
  seconds: number
  destinationCpu: number
}

interface Followed extends Direct {
  /** Seconds from the last write on the source until the destination's content is equal. */
  drain: number
  cpu: number
  sourceCpu: number
  peakMB: number
}

/**
 * Two writers send the same operations at full speed: once to the router of the destination while nothing else runs, and once to
 * the router of the source while tandem follows without verification. Each operation names the shard key.
 */
export async function benchShardedBurst(options: BenchOptions): Promise<Measured> {
  const operations = Math.ceil(operationsInFull * options.scale)
  await using servers = await startShardedServers(options)
  const direct: Direct[] = []
  const followed: Followed[] = []
  const variants = [
    async () => direct.push(await writeDirectly(servers, operations)),
    async () => followed.push(await follow(servers, operations, options)),
  ]
  for (let run = 0; run < options.runs; run++) {
    for (const runVariant of run % 2 === 0 ? variants : variants.toReversed()) {
      for (const server of [servers.source, servers.destination]) await empty(server)
      await runVariant()
    }
    const seconds = [direct, followed].map((runs) => `${runs.at(-1)?.seconds.toFixed(2)} s`)
    process.stderr.write(`  direct ${seconds[0]}, tandem ${seconds[1]}\n`)
  }
  return rowOf(operations, summaryOfRuns(direct), summaryOfRuns(followed))
}

function rowOf(operations: number, direct: Direct, ours: Followed): Measured {
  const figures = {
    operations,
    ratio: direct.seconds / ours.seconds,
    'direct s': direct.seconds,
    'tandem s until equal': ours.seconds,
    'drain s after last write': ours.drain,
    'tandem CPU s': ours.cpu,
    'source shards CPU s': ours.sourceCpu,
    'destination shards CPU s': ours.destinationCpu,
    'destination shards CPU s, direct': direct.destinationCpu,
    'tandem peak MB': ours.peakMB,
  }
  return { figures, misses: [] }
}

const create = (server: ShardedServer): Promise<void> =>
  createSharded(server, [database, burstCollection], { k: 1 }, keyValues)

async function writeDirectly(servers: ShardedServers, operations: number): Promise<Direct> {
  const { destination } = servers
  await create(destination)
  await using writers = await writersTo(destination, operations, 'mixed', { keyed: true })
  await waitUntilShardsIdle(servers)
  const stop = startMeter({ destinationCpu: destination.pids })
  await writers.go()
  const { wall: seconds, destinationCpu } = stop()
  return { seconds, destinationCpu }
}

async function follow(servers: ShardedServers, operations: number, options: BenchOptions): Promise<Followed> {
  const { source, destination } = servers
  await create(source)
  await using writers = await writersTo(source, operations, 'mixed', { keyed: true })
  await using tandem = await startReady(servers, options)
  await syncUntilCanCommit(tandem)
  await waitUntilShardsIdle(servers)
  const stop = startMeter({ cpu: tandem.pid, sourceCpu: source.pids, destinationCpu: destination.pids })
  await writers.go()
  const written = stop()
  const { wall: seconds, ...cpu } = await whenEqual(servers, stop)
  return { seconds, drain: seconds - written.wall, ...cpu, peakMB: peakMegabytesOf(tandem.pid) }
}

/**
 * Returns the meter's reading when both contents are equal. Equal counts, which are cheap to query, only trigger the
 * comparison of every byte. The meter is read before each comparison, and the reading before the comparison that finds
 * no difference is returned.
 */
async function whenEqual<Reading>(servers: ShardedServers, read: () => Reading): Promise<Reading> {
  const deadline = Date.now() + drainPatienceMS
  const wanted = await countOf(servers.source, [burstCollection])
  for (;;) {
    if ((await countOf(servers.destination, [burstCollection])) === wanted) {
      const reading = read()
      if ((await differencesOf(servers, burstCollection)).length === 0) return reading
    }
    if (Date.now() > deadline)
      throw new Error(`the destination was not equal ${drainPatienceMS / 1000} s after the last write`)
    await delay(pollMS)
  }
}
