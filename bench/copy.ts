import { startChild } from './child.ts'
import { assertSameHash, countOf } from './content.ts'
import { load, type Shape } from './load.ts'
import { overRuns, peakMegabytesOf, startMeter } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, type Pair, readThrough, settle, startPair } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

/** One contestant's copy. `seconds`: from the command to begin until every document is acknowledged by the majority. */
interface Effort {
  seconds: number
  /** Counted from before the process was started. */
  withStart: number
  cpu: number
  sourceCpu: number
  destinationCpu: number
  peakMB: number
}

type Contestant = (pair: Pair, options: BenchOptions) => Promise<Effort>

const contestants: Record<'naive' | 'tandem', Contestant> = { naive: naiveCopier, tandem }
type Name = keyof typeof contestants

/**
 * Rounds that do not count. What is touched for the first time (the machine's free memory by the page cache, blocks of the disk by the
 * servers' files) costs kernel time of the destination's: on a virtual machine the first rounds of 2 GB took 1.4 times the later ones.
 */
const warmUpRounds = 2

/** Both copy the same source into the same, emptied destination, taking turns at going first. */
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
      await readThrough(pair.source)
      await settle(pair)
      const effort = await contestants[name](pair, options)
      const copied = await countOf(pair.destination, names)
      if (copied !== documents) throw new Error(`${name} copied ${copied} of ${documents} documents`)
      process.stderr.write(`  ${run < 0 ? 'warming up: ' : ''}${name} ${effort.seconds.toFixed(2)} s\n`)
      if (run >= 0) efforts[name].push(effort)
    }
    // Whoever went last is checked to the byte; over the runs that is both.
    await assertSameHash(pair)
  }
  return rowOf(shape, documents, overRuns(efforts.naive), overRuns(efforts.tandem))
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

async function naiveCopier({ source, destination }: Pair): Promise<Effort> {
  const born = performance.now()
  const input = { source: source.uri, destination: destination.uri, database }
  await using child = await startChild<{ documents: number }>('naive-copier', input)
  const stop = startMeter({ cpu: child.pid, sourceCpu: source.pid, destinationCpu: destination.pid })
  await child.go()
  return finish(stop(), born, child.pid)
}

async function tandem(pair: Pair, options: BenchOptions): Promise<Effort> {
  const born = performance.now()
  await using instance = await startReady(pair, options)
  const stop = startMeter({ cpu: instance.pid, sourceCpu: pair.source.pid, destinationCpu: pair.destination.pid })
  await syncUntilCanCommit(instance)
  return finish(stop(), born, instance.pid)
}

function finish(
  { wall, ...cpu }: Record<'wall' | 'cpu' | 'sourceCpu' | 'destinationCpu', number>,
  born: number,
  pid: number,
): Effort {
  return { seconds: wall, withStart: (performance.now() - born) / 1000, ...cpu, peakMB: peakMegabytesOf(pid) }
}
