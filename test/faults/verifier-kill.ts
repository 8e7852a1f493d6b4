import { setTimeout as sleep } from 'node:timers/promises'
import { type Document, MongoClient } from 'mongodb'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { holdTandem } from '../support/fail-point.ts'
import { Random } from '../support/random.ts'
import type { Tandem } from '../support/tandem-process.ts'
import { until } from '../support/until.ts'
import { bulkDatabase, type Pair } from './clusters.ts'
import { corrupted, corruptions, seedForCorruptions } from './corruptions.ts'
import { type MigrationResult, runMigration } from './migration.ts'

/** Steps of a commit at which the process kills itself. */
const steps = ['commitPoint', 'compareDefinitions', 'capped', 'prepareIndexes', 'verify', 'verdict'] as const
const laterSteps = ['restoreExpiry', 'unblock', 'finishIndexes'] as const
/** Phases of the verifier, and the time soon after `commit` was sent, at which the process is killed. */
const phases = ['not started', 'initial hashing', 'stream hashing', 'soon after commit'] as const

export type KillMoment =
  | (typeof steps | typeof laterSteps | typeof phases)[number]
  | 'blockSource'
  | 'FAILED'
  | 'repair'

export interface KillCase {
  moment: KillMoment
  /** Whether one document is changed on the destination before the kill. The verdict must name exactly that document. */
  planted: boolean
}

/** All moments, with and without a planted difference where a sync can reach the moment in both cases. */
export const killCases: KillCase[] = [
  ...['blockSource' as const, ...steps, ...phases].flatMap((moment) => [
    { moment, planted: false },
    { moment, planted: true },
  ]),
  ...laterSteps.map((moment) => ({ moment, planted: false })),
  { moment: 'FAILED', planted: true },
  { moment: 'repair', planted: true },
]

export interface VerifierKillResult {
  /** Number of ranges that were stored as verified when the process died. */
  rangesBefore: number
  /** Number of these ranges that were read again after the restart. It must be 0. */
  rangesReadAgain: number
}

const planted = corruptions.find(({ name }) => name === 'a changed string') as (typeof corruptions)[number]

/**
 * Runs one verified migration, kills its process at the given moment and restarts it. The migration must end COMMITTED and
 * equal, or FAILED with exactly the planted difference and, after repair and resume, COMMITTED and equal.
 */
export async function runVerifierKill(
  pair: Pair,
  seed: number,
  { moment, planted: isPlanted }: KillCase,
): Promise<MigrationResult<VerifierKillResult>> {
  const random = new Random(`verifier kill ${seed}`)
  await using source = await MongoClient.connect(pair.source.uri)
  await using destination = await MongoClient.connect(pair.destination.uri)
  const blocks = moment === 'blockSource' || random.chance(0.5)
  const enableUserWriteBlocking = blocks ? 'sourceAndDestination' : 'destinationOnly'
  const start = { verification: { enabled: true }, enableUserWriteBlocking }
  const options = { clusters: pair, name: `verifier-kill-${seed}`, random, keep: [bulkDatabase], start }
  return await runMigration(options, async (migration) => {
    const { instances } = migration
    await seedForCorruptions(source.db(corrupted))
    await instances.start('a', { faults: { crashAt: moment } })
    await instances.begin('a')
    const tandem = instances.get('a')
    // Holds back the scan of a collection without writes, so that the scan does not end before some ranges are stored.
    await using _ = moment === 'initial hashing' ? await holdTandem(destination, 'find', `${corrupted}.words`) : null
    await until('copied', () => expectCopied(destination))
    if (isPlanted) await planted.apply(destination.db(corrupted), source.db(corrupted))
    if (moment !== 'not started') await write(source, random)
    if (moment === 'initial hashing') await killWhileScanning(tandem, destination, random)
    else await untilMoment(tandem, moment, random)
    await instances.kill('a')
    const before = await countReads(destination)
    await instances.startAgain('a')
    const again = instances.get('a')
    if (isPlanted) {
      await toTheEnd(again, 'FAILED')
      await expectPlanted(again)
      await post(again, 'repair')
      await post(again, 'resume')
    }
    await toTheEnd(again, 'COMMITTED')
    const after = await countReads(destination)
    await migration.compare()
    const readAgain = [...before].filter(([id, reads]) => after.get(id) !== reads)
    if (readAgain.length > 0) migration.problems.push(`${readAgain.length} verified ranges were read again`)
    return { rangesBefore: before.size, rangesReadAgain: readAgain.length }
  })
}

/** Brings `tandem` to the moment. At a commit step, waits until the process kills itself. */
async function untilMoment(tandem: Tandem, moment: KillMoment, random: Random): Promise<void> {
  if (moment === 'not started') return
  await tandem.waitFor(({ verification }) => verification?.source.phase === 'stream hashing', {
    timeoutSeconds: 120,
    what: 'followed by the verifier',
  })
  if (moment === 'stream hashing') return await sleep(random.int(0, 1_500))
  await post(tandem, 'commit').catch((error) => {
    if (!(error instanceof TypeError)) throw error // the process may end before it answers
  })
  if (moment === 'soon after commit') return await sleep(random.int(0, 1_200))
  await until('the process has died or the sync is FAILED', async () => {
    if (!tandem.isRunning()) return
    const progress = await tandem.progress()
    if (progress.state !== 'FAILED') throw new Error(progress.state)
  })
  if (moment !== 'repair') return
  await post(tandem, 'repair').catch(() => {})
  await until('the process has died', async () => {
    if (tandem.isRunning()) throw new Error('the process still runs')
  })
}

/** Kills the process when some ranges are stored. The scan is held back, so it is still in progress then. */
async function killWhileScanning(tandem: Tandem, destination: MongoClient, random: Random): Promise<void> {
  const stored = random.int(1, 7)
  await until('some ranges stored', async () => {
    const { size } = await countReads(destination)
    if (size < stored) throw new Error(`${size} ranges`)
  })
  const { verification } = await tandem.progress()
  if (verification?.source.phase !== 'initial hashing') throw new Error('the scan has ended already')
  await tandem.kill9()
}

/**
 * Waits for the final state. A restarted instance continues without a command. If the commit was not stored when the
 * process died, it is sent again.
 */
async function toTheEnd(tandem: Tandem, end: 'FAILED' | 'COMMITTED'): Promise<void> {
  await tandem.waitFor(({ state, canCommit }) => canCommit || state === end, { timeoutSeconds: 120, what: 'continued' })
  if ((await tandem.progress()).state === 'RUNNING') await post(tandem, 'commit')
  await tandem.waitFor(({ state }) => state === end, { timeoutSeconds: 120, what: end })
}

async function expectPlanted(tandem: Tandem): Promise<void> {
  const answer = await fetch(`${tandem.url}/api/v1/verification/mismatches`)
  const { mismatches, total } = (await answer.json()) as { mismatches: Document[]; total: number }
  const { namespace, kind, id, field } = mismatches[0] ?? {}
  const found = JSON.stringify({ namespace, kind, id, field })
  if (total !== 1 || mismatches.length !== 1 || found !== JSON.stringify(planted.expected)) {
    throw new Error(`mismatches (${total}): ${JSON.stringify(mismatches)}`)
  }
}

async function post(tandem: Tandem, command: string): Promise<void> {
  const { status, body } = await tandem.post(command)
  if (status !== 200) throw new Error(`${command} answered ${status} ${JSON.stringify(body)}`)
}

/** Requires that the collections of `corrupted` are copied, so that the copy does not overwrite the planted difference. */
async function expectCopied(destination: MongoClient): Promise<void> {
  const collections = destination.db(metadataDatabase).collection('collections')
  const copied = await collections.countDocuments({ database: corrupted, state: 'copied' })
  if (copied === 0 || copied < (await collections.countDocuments({ database: corrupted }))) {
    throw new Error('the collections are still being copied')
  }
}

/** Writes changes that the verifier must follow, many of them to the same few documents. */
async function write(source: MongoClient, random: Random): Promise<void> {
  const things = source.db(corrupted).collection<Document>('things')
  const bulk = source.db(bulkDatabase).collection<Document>('documents')
  for (let write = 0; write < 100; write++) {
    await things.updateOne({ _id: random.int(100, 110) as never }, { $inc: { ratio: 1 } })
    await bulk.updateOne({ _id: random.int(0, 50_000) as never }, { $inc: { at: 1 } })
  }
}

/** Returns, for each range, how often it was read and stored as verified. */
async function countReads(destination: MongoClient): Promise<Map<string, number>> {
  const ranges = await destination
    .db(metadataDatabase)
    .collection<{ _id: string; reads: number }>('verifiedRanges')
    .find({}, { readConcern: 'majority' })
    .toArray()
  return new Map(ranges.map(({ _id, reads }) => [_id, reads]))
}
