import { isDeepStrictEqual } from 'node:util'
import { type Document, MongoClient } from 'mongodb'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { failPoint, holdTandem } from '../support/fail-point.ts'
import { Random } from '../support/random.ts'
import type { Tandem } from '../support/tandem-process.ts'
import { until } from '../support/until.ts'
import type { Pair } from './clusters.ts'
import { type Corruption, corrupted, type Phase, seedForCorruptions } from './corruptions.ts'
import { type MigrationResult, runMigration } from './migration.ts'

interface Run {
  tandem: Tandem
  sourceClient: MongoClient
  destinationClient: MongoClient
  /** Sends `start`. */
  start(): Promise<void>
}

export interface CorruptionResult {
  /** Whether the verifier reported the corruption, or the corruption was gone before the verdict. */
  outcome: 'reported' | 'gone'
}

/** A separate collection whose copy is held back while all others are copied. */
const last = { database: 'other', collection: 'held' }

/**
 * Runs one migration and applies one corruption in one phase of it. Two outcomes are correct. Either the verifier reports
 * exactly that corruption, and then repair and resume complete the migration. Or the corruption is gone before the verdict
 * for a known reason. For any other outcome, the result contains a problem, or the call rejects.
 */
export async function runCorruption(
  pair: Pick<Pair, 'source' | 'destination'>,
  phase: Phase,
  corruption: Corruption,
): Promise<MigrationResult<CorruptionResult>> {
  const name = `corruption-${phase}-${corruption.name}`
  const options = { clusters: pair, name, random: new Random(name), start: { verification: { enabled: true } } }
  return await runMigration(options, async (migration) => {
    const { instances, problems } = migration
    await using sourceClient = await MongoClient.connect(pair.source.uri)
    await using destinationClient = await MongoClient.connect(pair.destination.uri)
    await seedForCorruptions(sourceClient.db(corrupted))
    await sourceClient.db(last.database).collection(last.collection).insertOne({})
    const faults = corruption.dropsEvents ? { faults: { dropEventsOf: `${corrupted}.things` } } : {}
    await instances.start('a', faults)
    const tandem = instances.get('a')
    const run = { tandem, sourceClient, destinationClient, start: () => instances.begin('a') }
    await at[phase](run, corruption)
    const end = await tandem.waitFor(({ state }) => state === 'FAILED' || state === 'COMMITTED', {
      timeoutSeconds: 60,
      what: 'failed or committed',
    })
    const outcome = end.state === 'FAILED' ? 'reported' : 'gone'
    if (outcome === 'reported') {
      if (end.failure?.error !== 'VerificationFailed')
        throw new Error(`the sync failed because of ${JSON.stringify(end.failure)}`)
      await expectReported(run, phase, corruption)
      await post(tandem, 'repair')
      await corruption.remove?.(destinationClient.db(corrupted))
      await post(tandem, 'resume')
      await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
    }
    await migration.compare()
    const reason = corruption.gone?.[phase]
    if (outcome === 'gone' && !reason)
      problems.push('the corruption was gone before the verdict without a known reason')
    if (outcome === 'reported' && reason) problems.push(`the corruption was reported, although ${reason}`)
    return { outcome }
  })
}

const at: Record<Phase, (run: Run, corruption: Corruption) => Promise<void>> = {
  /** All collections except one are copied; the copy of that one is held back. */
  copying: async (run, corruption) => {
    const { tandem, destinationClient } = run
    await using held = await (corruption.beforeItsCopy
      ? holdTandem(destinationClient, 'insert', `${corrupted}.things`)
      : holdLast(destinationClient))
    await run.start()
    await held.reached()
    await allButOneCopied(destinationClient)
    await corrupt(run, corruption)
    await held.release()
    await commit(tandem)
  },
  /** The verifier's scan has begun and cannot read. */
  hashing: async (run, corruption) => {
    const { tandem, sourceClient, destinationClient } = run
    await using held = await holdLast(destinationClient)
    await run.start()
    await held.reached()
    await allButOneCopied(destinationClient)
    await using scan = await holdTandem(sourceClient, 'find', `${corrupted}.things`)
    await held.release()
    await scan.reached()
    await tandem.waitFor(({ verification }) => verification?.source.phase === 'initial hashing', {
      timeoutSeconds: 30,
      what: 'the first scan to begin',
    })
    await corrupt(run, corruption)
    await scan.release()
    await commit(tandem)
  },
  /** Everything is scanned, and the verifier follows changes. */
  applying: async (run, corruption) => {
    await run.start()
    await untilScanned(run.tandem)
    await corrupt(run, corruption)
    await commit(run.tandem)
  },
  /** After the commit timestamp is taken and before the verdict: in the step that restores deferred options. */
  committing: async (run, corruption) => {
    await run.start()
    await untilScanned(run.tandem)
    await using held = await holdTandem(run.destinationClient, 'collMod', `${corrupted}.things`)
    await commit(run.tandem)
    await held.reached()
    await corrupt(run, corruption)
    await held.release()
  },
}

/** Makes the insert of tandem hang. The insert succeeds when the fail point is released. */
const holdLast = (client: MongoClient) =>
  failPoint(client, 'hangDuringBatchInsert', { nss: `${last.database}.${last.collection}` })

async function allButOneCopied(destinationClient: MongoClient): Promise<void> {
  await until('all but one copied', async () => {
    const copying = await destinationClient
      .db(metadataDatabase)
      .collection<Document>('collections')
      .find({ state: { $ne: 'copied' } })
      .toArray()
    const names = copying.map(({ database, name }) => `${database}.${name}`)
    if (names.length !== 1) throw new Error(`still copying ${names.join(', ')}`)
  })
}

async function untilScanned(tandem: Tandem): Promise<void> {
  await tandem.waitFor(({ verification }) => verification?.source.phase === 'stream hashing', {
    timeoutSeconds: 30,
    what: 'the first scan to end',
  })
}

async function corrupt({ sourceClient, destinationClient }: Run, corruption: Corruption): Promise<void> {
  const reply = await corruption.apply(destinationClient.db(corrupted), sourceClient.db(corrupted))
  // A corruption that changes nothing cannot be found and would prove nothing.
  const changed = (reply as Document | undefined)?.['nModified'] ?? (reply as Document | undefined)?.['n']
  if (changed === 0) throw new Error('the corruption changed nothing')
}

async function commit(tandem: Tandem): Promise<void> {
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  await post(tandem, 'commit')
}

async function post(tandem: Tandem, command: string): Promise<void> {
  const { status, body } = await tandem.post(command)
  if (status !== 200) throw new Error(`${command} answered ${status} ${JSON.stringify(body)}`)
}

async function expectReported({ tandem }: Run, phase: Phase, corruption: Corruption): Promise<void> {
  const answer = await fetch(`${tandem.url}/api/v1/verification/mismatches`)
  const { mismatches, total } = (await answer.json()) as { mismatches: Document[]; total: number }
  const { id: foundId, ...found } = mismatches[0] ?? {}
  const { id, ...named } = corruption.expected
  const by = expectedBy(phase, corruption)
  const expected = { ...named, ...(by ? { by } : {}) }
  const same = isDeepStrictEqual(found, expected) && (id === undefined || isDeepStrictEqual(foundId, id))
  if (mismatches.length !== 1 || total !== 1 || !same) {
    const [got, wanted] = [mismatches, { ...corruption.expected, ...expected }].map((one) => JSON.stringify(one))
    throw new Error(`the verifier reported ${total} mismatches: ${got}, expected ${wanted}`)
  }
}

/**
 * Returns the cause that the verifier reports. The verifier knows the cause of a document's mismatch only for changes
 * after it began to follow both streams.
 */
function expectedBy(phase: Phase, { expected, dropsEvents }: Corruption): 'sync' | 'foreignWrite' | undefined {
  if (expected.kind === 'collection') return 'foreignWrite'
  if (expected.kind === 'index' || expected.kind === 'option' || phase === 'copying') return undefined
  return dropsEvents ? 'sync' : 'foreignWrite'
}
