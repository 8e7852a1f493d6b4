import { startChild } from './child.ts'
import { assertSameBytes, countOf } from './content.ts'
import { load, type Shape } from './load.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import type { Measured } from './report.ts'
import { database, empty, warmCache } from './servers.ts'
import { createSharded, type ShardedServers, startShardedServers, waitUntilShardsIdle } from './sharded-servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const shape: Shape = {
  name: '1k',
  title: 'one collection, 1 KB',
  collections: 1,
  documents: 200_000,
  documentBytes: 1_024,
}
const collection = 'c0'
const warmUpRounds = 1

interface Effort {
  seconds: number
  cpu: number
  sourceCpu: number
  destinationCpu: number
  peakMB: number
}

type Name = 'naive' | 'tandem'

/**
 * Both copiers copy the same sharded collection through the same routers. The naive copier gets a destination whose collection is
 * sharded already. tandem creates, shards and splits the collection itself, and that is part of its time.
 */
export async function benchShardedCopy(options: BenchOptions): Promise<Measured> {
  const documents = Math.ceil(shape.documents * options.scale)
  await using servers = await startShardedServers(options)
  const create = (server: ShardedServers['source']): Promise<void> =>
    createSharded(server, [database, collection], { number: 1 }, documents)
  await create(servers.source)
  await load(servers.source, { ...shape, documents })
  const efforts: Record<Name, Effort[]> = { naive: [], tandem: [] }
  for (let run = -warmUpRounds; run < options.runs; run++) {
    const order: Name[] = run % 2 === 0 ? ['naive', 'tandem'] : ['tandem', 'naive']
    for (const name of order) {
      await empty(servers.destination)
      if (name === 'naive') await create(servers.destination)
      await warmCache(servers.source)
      await waitUntilShardsIdle(servers)
      const effort = name === 'naive' ? await copyNaively(servers) : await copyByTandem(servers, options)
      const copied = await countOf(servers.destination, [collection])
      if (copied !== documents) throw new Error(`${name} copied ${copied} of ${documents} documents`)
      process.stderr.write(`  ${run < 0 ? 'warming up: ' : ''}${name} ${effort.seconds.toFixed(2)} s\n`)
      if (run >= 0) efforts[name].push(effort)
    }
    // The copy that ran last is checked to the byte. Over several runs this covers both copiers.
    await assertSameBytes(servers, collection)
  }
  return rowOf(documents, summaryOfRuns(efforts.naive), summaryOfRuns(efforts.tandem))
}

function rowOf(documents: number, naive: Effort, ours: Effort): Measured {
  const figures = {
    documents,
    megabytes: (documents * shape.documentBytes) / 1e6,
    ratio: naive.seconds / ours.seconds,
    'naive s': naive.seconds,
    'tandem s': ours.seconds,
    'naive CPU s': naive.cpu,
    'tandem CPU s': ours.cpu,
    'source shards CPU s, naive': naive.sourceCpu,
    'source shards CPU s, tandem': ours.sourceCpu,
    'destination shards CPU s, naive': naive.destinationCpu,
    'destination shards CPU s, tandem': ours.destinationCpu,
    'naive peak MB': naive.peakMB,
    'tandem peak MB': ours.peakMB,
  }
  return { figures, misses: [] }
}

async function copyNaively({ source, destination }: ShardedServers): Promise<Effort> {
  const input = { source: source.uri, destination: destination.uri, database }
  await using child = await startChild<{ documents: number }>('naive-copier', input)
  const stop = startMeter({ cpu: child.pid, sourceCpu: source.pids, destinationCpu: destination.pids })
  await child.go()
  const { wall: seconds, ...cpu } = stop()
  return { seconds, ...cpu, peakMB: peakMegabytesOf(child.pid) }
}

async function copyByTandem(servers: ShardedServers, options: BenchOptions): Promise<Effort> {
  await using instance = await startReady(servers, options)
  const { source, destination } = servers
  const stop = startMeter({ cpu: instance.pid, sourceCpu: source.pids, destinationCpu: destination.pids })
  await syncUntilCanCommit(instance)
  const { wall: seconds, ...cpu } = stop()
  return { seconds, ...cpu, peakMB: peakMegabytesOf(instance.pid) }
}
