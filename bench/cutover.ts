import { setTimeout as delay } from 'node:timers/promises'
import { startChild } from './child.ts'
import { load, type Shape } from './load.ts'
import { overRuns, peakMegabytesOf } from './measure.ts'
import { type Measured, missesOf } from './report.ts'
import { database, empty, settle, startPair } from './servers.ts'
import type { SteadyWriterInput } from './steady-writer.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const operationsPerSecond = 1_000
const secondsInFull = 15
const pollMS = 10

/** From `commit` until applications may write on the destination, right after a steady load on the source has ended. */
export async function benchCutover(full: Shape, options: BenchOptions): Promise<Measured> {
  const shape = { ...full, documents: Math.ceil(full.documents * options.scale) }
  await using pair = await startPair(options)
  await load(pair.source, shape)
  const all: Record<string, number>[] = []
  for (let run = 0; run < options.runs; run++) {
    await empty(pair.destination)
    await settle(pair)
    await using tandem = await startReady(pair, options)
    await syncUntilCanCommit(tandem, { verification: { enabled: true } })
    const seconds = Math.max(3, secondsInFull * options.scale)
    const writing: SteadyWriterInput = {
      uri: pair.source.uri,
      database,
      collection: 'steady',
      operationsPerSecond,
      seconds,
    }
    await using writer = await startChild<{ operationsPerSecond: number }>('steady-writer', writing)
    const written = await writer.go()
    const began = performance.now()
    const answer = await tandem.post('commit')
    if (answer.status !== 200) throw new Error(`commit answered ${JSON.stringify(answer.body)}`)
    const accepted = performance.now()
    for (;;) {
      const { canWrite, failure } = await tandem.progress()
      if (failure) throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${tandem.output()}`)
      if (canWrite) break
      await delay(pollMS)
    }
    const cutover = (performance.now() - began) / 1000
    process.stderr.write(`  canWrite ${cutover.toFixed(2)} s after commit\n`)
    all.push({
      documents: shape.documents,
      'operations/s before': written.operationsPerSecond,
      'commit answered s': (accepted - began) / 1000,
      'commit to canWrite s': cutover,
      'tandem peak MB': peakMegabytesOf(tandem.pid),
    })
    await pair.source.client.db(database).dropCollection('steady')
  }
  const figures = overRuns(all)
  return { figures, misses: missesOf(figures, { 'commit to canWrite s': { atMost: 5 } }) }
}
