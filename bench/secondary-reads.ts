import { MongoClient } from 'mongodb'
import { type ReplicaSet, startReplicaSet } from '../test/support/replica-set.ts'
import { countOf } from './content.ts'
import { load } from './load.ts'
import { startMeter, summaryOfRuns } from './measure.ts'
import type { Measured } from './report.ts'
import { empty, type Server, serverSettings, untilIdle } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'

const documents = 200_000
const modes = ['primary', 'secondaryPreferred'] as const

/**
 * Measures what `--copyReadPreference secondaryPreferred` spares the primary of a source with three members: its CPU seconds,
 * and the documents that it returns, from the start until the first verification has ended. The modes take turns.
 */
export async function benchSecondaryReads(options: BenchOptions): Promise<Measured> {
  const settings = { members: 1, ...serverSettings(options) }
  await using from = await server(await startReplicaSet({ name: 'source', ...settings, members: 3 }))
  await using to = await server(await startReplicaSet({ name: 'destination', ...settings }))
  const count = Math.round(documents * options.scale)
  await load(from, { name: '1k', title: '', collections: 1, documents: count, documentBytes: 1_024 })
  const all = { primary: [] as Figures[], secondaryPreferred: [] as Figures[] }
  for (let run = 0; run < options.runs; run++)
    for (const mode of modes) all[mode].push(await measure(from, to, options, mode, count))
  const figures: Record<string, number> = {}
  for (const mode of modes)
    for (const [name, value] of Object.entries(summaryOfRuns(all[mode]))) figures[`${mode}: ${name}`] = value
  return { figures, misses: [] }
}

type Figures = Record<
  's' | 'CPU s of the primary' | 'documents returned by the primary' | 'the same by secondaries',
  number
>

async function measure(
  from: Source,
  to: Source,
  options: BenchOptions,
  mode: (typeof modes)[number],
  count: number,
): Promise<Figures> {
  await empty(to)
  await untilIdle([from.pid, to.pid])
  await using tandem = await startReady({ source: from, destination: to }, options, {
    TANDEM_COPY_READ_PREFERENCE: mode,
  })
  const [stop, before] = [startMeter({ primary: from.pid }), await returned(from)]
  await syncUntilCanCommit(tandem, { verification: { enabled: true } })
  const [{ wall, primary }, after] = [stop(), await returned(from)]
  if ((await countOf(to, ['c0'])) !== count) throw new Error('the destination has another number of documents')
  return {
    s: wall,
    'CPU s of the primary': primary,
    'documents returned by the primary': after.primary - before.primary,
    'the same by secondaries': after.secondaries - before.secondaries,
  }
}

interface Source extends Server, AsyncDisposable {
  set: ReplicaSet
}

async function server(set: ReplicaSet): Promise<Source> {
  const client = new MongoClient(set.uri)
  return {
    set,
    client,
    uri: set.uri,
    linkUri: set.uri,
    directUri: set.uris[0] as string,
    pid: await set.primaryPid(),
    [Symbol.asyncDispose]: async () => {
      await client.close()
      await set.stop()
    },
  }
}

/** The number of documents that the members have returned to clients and to each other, by role. */
async function returned({ set }: Source): Promise<{ primary: number; secondaries: number }> {
  const sum = { primary: 0, secondaries: 0 }
  for (const uri of set.uris) {
    await using member = await MongoClient.connect(uri)
    const { metrics, repl } = await member.db('admin').command({ serverStatus: 1 })
    sum[repl.isWritablePrimary ? 'primary' : 'secondaries'] += Number(metrics.document.returned)
  }
  return sum
}
