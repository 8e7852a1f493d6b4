import { startChild } from './child.ts'
import { assertSameHash, countOf } from './content.ts'
import { load, type Shape } from './load.ts'
import { peakMegabytesOf, startMeter, summaryOfRuns } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

/** The cost of one copy. `seconds` runs from the start command until the majority has acknowledged every document. */
interface Effort {
  seconds: number
  /** Seconds including the start of the process. */
  withStart: number
  cpu: number
  sourceCpu: number
  destinationCpu: number
  peakMB: number
}

type Copier = (pair: Pair, options: BenchOptions) => Promise<Effort>

const copiers: Record<'naive' | 'tandem', Copier> = { naive: copyNaively, tandem }
type Name = keyof typeof copiers

/**
 * The first rounds do not count. In these rounds the page cache uses memory for the first time, and the servers' files
 * use disk blocks for the first time. This costs CPU time in the destination's kernel. On a virtual machine, the first
 * rounds of 2 GB took 1.4 times as long as the later ones.
 */
const warmUpRounds = 2

/** Both copiers copy the same source into the same emptied destination. They take turns at being first. */
export async function benchCopy(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale) }
  const documents = shape.collections * shape.documents
  const names = Array.from({ length: shape.collections }, (_, number) => `c${number}`)
  await using pair = await startPair(options)
  await load(pair.source, shape)
  const efforts: Record<Name, Effort[]> = { naive: [], tandem: [] }
  for (let run = -warmUpRounds; run < options.runs; run++) {
    const order: Name[] = run % 2 === 0 ? ['naive', 'tandem'] : ['tandem', 'naive']
    for (const name of order) {
      await empty(pair.destination)
      await warmCache(pair.source)
      await waitUntilIdle(pair)
      const effort = await copiers[name](pair, options)
      const copied = await countOf(pair.destination, names)
      if (copied !== documents) throw new Error(`${name} copied ${copied} of ${documents} documents`)
      process.stderr.write(`  ${run < 0 ? 'warming up: ' : ''}${name} ${effort.seconds.toFixed(2)} s\n`)
      if (run >= 0) efforts[name].push(effort)
    }
    // This compares every byte of the copy that ran last. Over several runs, both copiers are checked.
    await assertSameHash(pair)
  }
  return rowOf(shape, documents, summaryOfRuns(efforts.naive), summaryOfRuns(efforts.tandem))
}

function rowOf(shape: Shape, documents: number, naive: Effort, ours: Effort): Measured {
  const ratio = naive.seconds / ours.seconds
  const figures = {
    documents,
    megabytes: (documents * shape.documentBytes) / 1e6,
    ratio,
    'naive s': naive.seconds,
    'tandem s': ours.seconds,
    'tandem docs/s': documents / ours.seconds,
    'naive s with process start': naive.withStart,
    'tandem s with process start': ours.withStart,
    'naive CPU s': naive.cpu,
    'tandem CPU s': ours.cpu,
    'source CPU s, naive': naive.sourceCpu,
    'source CPU s, tandem': ours.sourceCpu,
    'destination CPU s, naive': naive.destinationCpu,
    'destination CPU s, tandem': ours.destinationCpu,
    'naive peak MB': naive.peakMB,
    'tandem peak MB': ours.peakMB,
  }
  const targets = { ratio: { atLeast: 1 }, 'tandem peak MB': { atMost: 400 } }
  return { figures, misses: missesOf(figures, targets) }
}

async function copyNaively({ source, destination }: Pair): Promise<Effort> {
  const processStarted = performance.now()
  const input = { source: source.linkUri, destination: destination.linkUri, database }
  await using child = await startChild<{ documents: number }>('naive-copier', input)
  const stop = startMeter({ cpu: child.pid, sourceCpu: source.pid, destinationCpu: destination.pid })
  await child.go()
  return finish(stop(), processStarted, child.pid)
}

async function tandem(pair: Pair, options: BenchOptions): Promise<Effort> {
  const processStarted = performance.now()
  await using instance = await startReady(pair, options)
  const stop = startMeter({ cpu: instance.pid, sourceCpu: pair.source.pid, destinationCpu: pair.destination.pid })
  await syncUntilCanCommit(instance)
  return finish(stop(), processStarted, instance.pid)
}

function finish(
  { wall, ...cpu }: Record<'wall' | 'cpu' | 'sourceCpu' | 'destinationCpu', number>,
  processStarted: number,
  pid: number,
): Effort {
  return { seconds: wall, withStart: (performance.now() - processStarted) / 1000, ...cpu, peakMB: peakMegabytesOf(pid) }
}
