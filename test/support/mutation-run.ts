import { isDeepStrictEqual } from 'node:util'
import { type Document, MongoClient } from 'mongodb'
import { compareBoth } from './compare-both.ts'
import { failPoint, holdTandem } from './fail-point.ts'
import { type Mutation, mutated, type Phase, seedForMutations } from './mutations.ts'
import { emptyBoth } from './paired-sets.ts'
import type { ReplicaSet } from './replica-set.ts'
import { startSync, startTandem, type Tandem } from './tandem-process.ts'
import { until } from './until.ts'

interface Run {
  tandem: Tandem
  sourceClient: MongoClient
  destinationClient: MongoClient
}

/** A collection of its own, whose documents hold the copy up while all others are copied. */
const last = { database: 'other', collection: 'held' }

/**
 * One migration with one corruption at one moment. The verifier either reports exactly that one, and repair and resume
 * complete the migration, or nothing of it is left in the end. Both are checked against both oracles; anything else throws.
 */
export async function runMutation(
  sets: { source: ReplicaSet; destination: ReplicaSet },
  phase: Phase,
  mutation: Mutation,
): Promise<'reported' | 'mended'> {
  await using sourceClient = await MongoClient.connect(sets.source.uri)
  await using destinationClient = await MongoClient.connect(sets.destination.uri)
  await emptyBoth({ sourceClient, destinationClient })
  await seedForMutations(sourceClient.db(mutated))
  await sourceClient.db(last.database).collection(last.collection).insertOne({})
  await using tandem = await startTandem({
    cluster0: sets.source.uri,
    cluster1: sets.destination.uri,
    ...(mutation.dropsEvents ? { faults: { dropEventsOf: `${mutated}.things` } } : {}),
  })
  const run = { tandem, sourceClient, destinationClient }
  await until('connected', () => tandem.progress())
  await at[phase](run, mutation)
  const end = await tandem.waitFor(({ state }) => state === 'FAILED' || state === 'COMMITTED', {
    timeoutSeconds: 60,
    what: 'failed or committed',
  })
  const outcome = end.state === 'FAILED' ? 'reported' : 'mended'
  if (outcome === 'reported') {
    if (end.failure?.error !== 'VerificationFailed') throw new Error(`failed by ${JSON.stringify(end.failure)}`)
    await expectReported(run, phase, mutation)
    await post(tandem, 'repair')
    await mutation.remove?.(destinationClient.db(mutated))
    await post(tandem, 'resume')
    await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 60, what: 'committed' })
  }
  const { equal, differences } = await compareBoth(sets.source.uri, sets.destination.uri)
  if (!equal) throw new Error(`${outcome}, and then not equal: ${differences.join('; ')}`)
  const reason = mutation.mended?.[phase]
  if (outcome === 'mended' && !reason) throw new Error('mended, which nothing accounts for')
  if (outcome === 'reported' && reason) throw new Error(`reported, although ${reason}`)
  return outcome
}

const at: Record<Phase, (run: Run, mutation: Mutation) => Promise<void>> = {
  /** Every collection is copied but one, which is held up. */
  copying: async (run, mutation) => {
    const { tandem, destinationClient } = run
    await using held = await (mutation.beforeItsCopy
      ? holdTandem(destinationClient, 'insert', `${mutated}.things`)
      : holdLast(destinationClient))
    await startSync(tandem, verified)
    await held.reached()
    await allButOneCopied(destinationClient)
    await corrupt(run, mutation)
    await held.release()
    await commit(tandem)
  },
  /** The scan has begun and cannot read. */
  hashing: async (run, mutation) => {
    const { tandem, sourceClient, destinationClient } = run
    await using held = await holdLast(destinationClient)
    await startSync(tandem, verified)
    await held.reached()
    await allButOneCopied(destinationClient)
    await using scan = await holdTandem(sourceClient, 'find', `${mutated}.things`)
    await held.release()
    await scan.reached()
    await tandem.waitFor(({ verification }) => verification?.source.phase === 'initial hashing', {
      timeoutSeconds: 30,
      what: 'scanned',
    })
    await corrupt(run, mutation)
    await scan.release()
    await commit(tandem)
  },
  /** Everything is scanned; changes are followed. */
  applying: async (run, mutation) => {
    await startSync(run.tandem, verified)
    await streamHashing(run.tandem)
    await corrupt(run, mutation)
    await commit(run.tandem)
  },
  /** Between the commit point and the verdict, while traits are restored. */
  committing: async (run, mutation) => {
    await startSync(run.tandem, verified)
    await streamHashing(run.tandem)
    await using held = await holdTandem(run.destinationClient, 'collMod', `${mutated}.things`)
    await commit(run.tandem)
    await held.reached()
    await corrupt(run, mutation)
    await held.release()
  },
}

/** Within its insert, which fails nothing. */
const holdLast = (client: MongoClient) =>
  failPoint(client, 'hangDuringBatchInsert', { nss: `${last.database}.${last.collection}` })

async function allButOneCopied(destinationClient: MongoClient): Promise<void> {
  await until('all but one copied', async () => {
    const copying = await destinationClient
      .db('tandem_internal')
      .collection<Document>('collections')
      .find({ state: { $ne: 'copied' } })
      .toArray()
    const names = copying.map(({ database, name }) => `${database}.${name}`)
    if (names.length !== 1) throw new Error(`copying ${names.join(', ')}`)
  })
}

const verified = { verification: { enabled: true } }

async function streamHashing(tandem: Tandem): Promise<void> {
  await tandem.waitFor(({ verification }) => verification?.source.phase === 'stream hashing', {
    timeoutSeconds: 30,
    what: 'followed by the verifier',
  })
}

async function corrupt({ sourceClient, destinationClient }: Run, mutation: Mutation): Promise<void> {
  const reply = await mutation.apply(destinationClient.db(mutated), sourceClient.db(mutated))
  // Else it would be proven that nothing is reported as nothing.
  const changed = (reply as Document | undefined)?.['nModified'] ?? (reply as Document | undefined)?.['n']
  if (changed === 0) throw new Error('the mutation changed nothing')
}

async function commit(tandem: Tandem): Promise<void> {
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 30, what: 'ready to commit' })
  await post(tandem, 'commit')
}

async function post(tandem: Tandem, command: string): Promise<void> {
  const { status, body } = await tandem.post(command)
  if (status !== 200) throw new Error(`${command} answered ${status} ${JSON.stringify(body)}`)
}

async function expectReported({ tandem }: Run, phase: Phase, mutation: Mutation): Promise<void> {
  const answer = await fetch(`${tandem.url}/api/v1/verification/mismatches`)
  const { mismatches, total } = (await answer.json()) as { mismatches: Document[]; total: number }
  const { id: anyId, ...found } = mismatches[0] ?? {}
  const { id, ...named } = mutation.expected
  const by = byWhom(phase, mutation)
  const expected = { ...named, ...(by ? { by } : {}) }
  const same = isDeepStrictEqual(found, expected) && (id === undefined || isDeepStrictEqual(anyId, id))
  if (mismatches.length !== 1 || total !== 1 || !same) {
    const [got, wanted] = [mismatches, { ...mutation.expected, ...expected }].map((one) => JSON.stringify(one))
    throw new Error(`reported ${total}: ${got}, expected ${wanted}`)
  }
}

/** Documents only: changes before the verifier began to follow both streams are nobody's. */
function byWhom(phase: Phase, { expected, dropsEvents }: Mutation): 'sync' | 'foreignWrite' | undefined {
  if (expected.kind === 'collection') return 'foreignWrite'
  if (expected.kind === 'index' || expected.kind === 'option' || phase === 'copying') return undefined
  return dropsEvents ? 'sync' : 'foreignWrite'
}
