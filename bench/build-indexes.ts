import { BSON, ObjectId } from 'mongodb'
import { type BuildIndexes, buildsAfterCopy, excludesHashed } from '../src/domain/build-indexes.ts'
import { Random } from '../test/support/random.ts'
import { assertSameHash } from './content.ts'
import { startMeter, summaryOfRuns } from './measure.ts'
import { insertRaw } from './raw-insert.ts'
import type { Measured } from './report.ts'
import { database, empty, type Pair, startPair, waitUntilIdle, warmCache } from './servers.ts'
import { type BenchOptions, startReady, syncUntilCanCommit } from './tandem-run.ts'
import { TextPool } from './text.ts'

const collection = 'c0'
const documents = 300_000
const fillerCharacters = 700
const batchDocuments = 3_000

/** The mode without secondary indexes is measured first. The difference to it is the cost of the indexes. */
const modes = ['never', 'beforeDataCopy', 'afterDataCopy', 'excludeHashed', 'excludeHashedAfterCopy'] as const
type Mode = (typeof modes)[number] & BuildIndexes

const numbers = [0, 1, 2, 3, 4, 5] as const

/**
 * 20 secondary indexes: 12 on one field in random order, 2 on one field in the order of insertion, 2 compound ones, and 4
 * hashed ones.
 */
const indexes: { key: Record<string, 1 | -1 | 'hashed'> }[] = [
  ...numbers.map((at) => ({ key: { [`word${at}`]: 1 as const } })),
  ...numbers.map((at) => ({ key: { [`number${at}`]: 1 as const } })),
  { key: { at: 1 } },
  { key: { sequence: -1 } },
  { key: { word0: 1, number0: -1 } },
  { key: { number1: 1, at: 1 } },
  ...numbers.slice(0, 4).map((at) => ({ key: { [`word${at}`]: 'hashed' as const } })),
]
const hashedCount = 4

type Effort = Record<'wall' | 'tandem' | 'destination', number>

/**
 * Measures the same copy with each value of `buildIndexes`: the seconds until `canCommit`, which waits for all indexes. The
 * modes take turns, so that other work on the machine affects all of them alike.
 */
export async function benchBuildIndexes(options: BenchOptions): Promise<Measured> {
  await using pair = await startPair(options)
  await load(pair, Math.round(documents * options.scale))
  await pair.source.client.db(database).collection(collection).createIndexes(indexes)
  await warmCache(pair.source)
  const all = new Map<Mode, Effort[]>(modes.map((mode) => [mode, []]))
  for (let run = 0; run < options.runs; run++) {
    for (const mode of modes) {
      const figures = await sync(pair, options, mode)
      all.get(mode)?.push(figures)
      process.stderr.write(`  ${mode}: ${figures.wall.toFixed(2)} s\n`)
    }
  }
  const figures: Record<string, number> = {}
  const summaries = {} as Record<Mode, Effort>
  for (const [mode, runs] of all) {
    const { wall, tandem, destination } = summaryOfRuns(runs)
    summaries[mode] = { wall, tandem, destination }
    figures[`${mode}: s`] = wall
    figures[`${mode}: fastest s`] = Math.min(...runs.map((one) => one.wall))
    figures[`${mode}: slowest s`] = Math.max(...runs.map((one) => one.wall))
    figures[`${mode}: CPU s of tandem`] = tandem
    figures[`${mode}: CPU s of the destination`] = destination
  }
  const { beforeDataCopy: before, afterDataCopy: after, never } = summaries
  figures['ratio of s, beforeDataCopy to afterDataCopy'] = before.wall / after.wall
  figures['ratio of CPU of the destination, beforeDataCopy to afterDataCopy'] = before.destination / after.destination
  figures['ratio of s that the indexes add, beforeDataCopy to afterDataCopy'] =
    (before.wall - never.wall) / (after.wall - never.wall)
  return { figures, misses: [] }
}

async function sync(pair: Pair, options: BenchOptions, mode: Mode): Promise<Effort> {
  await empty(pair.destination)
  await waitUntilIdle(pair)
  await using tandem = await startReady(pair, options)
  const stop = startMeter({ tandem: tandem.pid, destination: pair.destination.pid })
  await syncUntilCanCommit(tandem, { buildIndexes: mode })
  const figures = stop()
  await assertSameHash(pair)
  const built = await pair.destination.client.db(database).collection(collection).indexes()
  const wanted = 1 + (mode === 'never' ? 0 : indexes.length - (excludesHashed(mode) ? hashedCount : 0))
  if (built.length !== wanted)
    throw new Error(
      `${mode}${buildsAfterCopy(mode) ? ' (after the copy)' : ''}: ${built.length} indexes, not ${wanted}`,
    )
  return figures
}

/** Fills the source with documents of about 1 KB. Their indexed values are in random order, except `at` and `sequence`. */
async function load({ source }: Pair, count: number): Promise<void> {
  const random = new Random('build-indexes')
  const pool = new TextPool('build-indexes', 2_000_000)
  const began = Date.now()
  for (let from = 0; from < count; from += batchDocuments) {
    const batch = Array.from({ length: Math.min(batchDocuments, count - from) }, (_, at) => {
      const sequence = from + at
      return Buffer.from(
        BSON.serialize({
          _id: new ObjectId(),
          ...Object.fromEntries(numbers.map((number) => [`word${number}`, random.word(12)])),
          ...Object.fromEntries(numbers.map((number) => [`number${number}`, random.int(0, 1_000_000_000)])),
          at: new Date(began + sequence),
          sequence,
          text: pool.piece(fillerCharacters),
        }),
      )
    })
    await insertRaw(source.client.db(database), collection, batch, 1)
  }
}
