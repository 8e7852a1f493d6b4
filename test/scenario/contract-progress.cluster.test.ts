import type { Document, MongoClient } from 'mongodb'
import { describe, expect, it, vi } from 'vitest'
import type { Progress } from '../../src/domain/progress.ts'
import { accepted, canCommit, commit } from '../support/commits.ts'
import { failPoint, holdCommand as holdCommandOf, holdCopy as holdCopyOf } from '../support/fail-point.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, type Tandem } from '../support/tandem-process.ts'

/** Compares every field of progress, as read over HTTP, with its definition in docs/contract.md. See test/contract.md. */

const pair = pairedSets()

const patience = { timeout: 30_000, interval: 20 }

const startInstance = pair.startInstance

const holdCopy = (namespace: string) => holdCopyOf(pair.destinationClient, namespace)
const holdCommand = (command: string, namespace: string) => holdCommandOf(pair.destinationClient, command, namespace)

interface Row extends Document {
  _id: number | string | null
}

const app = (client: MongoClient, collection: string) => client.db('app').collection<Row>(collection)

const arrives = (collection: string, filter: Document) =>
  vi.waitFor(async () => expect(await app(pair.destinationClient, collection).findOne(filter)).not.toBeNull(), patience)

const numbered = (count: number, from = 0, bytes = 10) =>
  Array.from({ length: count }, (_, at) => ({ _id: from + at, text: 'x'.repeat(bytes) }))

function copyOf(progress: Progress): NonNullable<Progress['collectionCopy']> {
  expect(progress.collectionCopy).not.toBeNull()
  return progress.collectionCopy as NonNullable<Progress['collectionCopy']>
}

it('2.5: coordinatorID equals mongosyncID when the instance runs alone', async () => {
  await using tandem = await startInstance({ id: 'single' })
  await startSync(tandem)
  const named = { mongosyncID: 'single', coordinatorID: 'single' }
  expect(await canCommit(tandem)).toMatchObject(named)
  await tandem.post('pause')
  expect(await tandem.progress()).toMatchObject({ state: 'PAUSED', ...named })
  await tandem.post('resume')
  expect(await commit(tandem)).toMatchObject(named)
})

it('facts 3: without --id the mongosyncID is coordinator, as in mongosync', async () => {
  await using tandem = await startInstance()
  await startSync(tandem)
  expect(await canCommit(tandem)).toMatchObject({ mongosyncID: 'coordinator', coordinatorID: 'coordinator' })
})

it('2.5: directionMapping is <cluster name>: <host>:<port>', async () => {
  await using tandem = await startInstance()
  await startSync(tandem)
  expect((await tandem.progress()).directionMapping).toEqual({
    Source: `cluster0: ${pair.source.hosts[0]}`,
    Destination: `cluster1: ${pair.destination.hosts[0]}`,
  })
})

it('2.5: info goes through its four values in order', async () => {
  await app(pair.sourceClient, 'things').insertMany(numbered(10))
  await app(pair.sourceClient, 'things').createIndex({ text: 1, _id: 1 }, { unique: true })
  const infos: (string | null)[] = []
  const record = ({ info }: Progress) => {
    if (infos.at(-1) !== info) infos.push(info)
    return true
  }
  const until = (condition: (progress: Progress) => boolean, what: string) =>
    tandem.waitFor((progress) => record(progress) && condition(progress), { timeoutSeconds: 30, what })

  await using copy = await holdCopy('app.things')
  await using tandem = await startInstance()
  await startSync(tandem)
  await copy.reached()
  await until(() => true, 'copying')
  await copy.release()
  await until((progress) => progress.canCommit, 'ready to commit')
  await using finish = await holdCommand('collMod', 'app.things')
  expect(await tandem.post('commit')).toEqual(accepted)
  await until((progress) => progress.retrying !== undefined, 'held in its last step')
  await finish.release()
  await until(({ state }) => state === 'COMMITTED', 'committed')
  expect(infos).toEqual([
    'collection copy',
    'change event application',
    'waiting for commit to complete',
    'commit completed',
  ])
})

it('2.5: totalEventsApplied grows with applied changes', async () => {
  await using tandem = await startInstance()
  await startSync(tandem)
  const before = (await canCommit(tandem)).totalEventsApplied as number
  await app(pair.sourceClient, 'things').insertMany(numbered(300))
  await arrives('things', { _id: 299 })
  const grown = await tandem.waitFor((progress) => (progress.totalEventsApplied as number) >= before + 300, {
    timeoutSeconds: 10,
    what: 'counting 300 inserts',
  })
  expect(grown.totalEventsApplied).toBeLessThan(before + 330)
  // Documents that the copy writes do not count as events.
  expect(before).toBeLessThan(10)
  expect((await commit(tandem)).totalEventsApplied).toBeGreaterThanOrEqual(before + 300)
})

it('2.5: lagTimeSeconds grows while the destination holds up changes, and shrinks after that', async () => {
  await app(pair.sourceClient, 'things').insertOne({ _id: 0 })
  await using tandem = await startInstance()
  await startSync(tandem)
  await canCommit(tandem)
  await using held = await holdCopy('app.things')
  let next = 1
  const lagging = await vi.waitFor(
    async () => {
      await app(pair.sourceClient, 'things').insertOne({ _id: next++ })
      const { lagTimeSeconds } = await tandem.progress()
      expect(lagTimeSeconds).toBeGreaterThanOrEqual(3)
      return lagTimeSeconds as number
    },
    { timeout: 20_000, interval: 100 },
  )
  expect(Number.isInteger(lagging)).toBe(true)
  await held.release()
  await tandem.waitFor(({ lagTimeSeconds }) => (lagTimeSeconds as number) <= 1, {
    timeoutSeconds: 20,
    what: 'caught up',
  })
  await arrives('things', { _id: next - 1 })
})

it('3: lagTimeSeconds is null while PAUSED', async () => {
  await using tandem = await startInstance()
  await startSync(tandem)
  expect((await canCommit(tandem)).lagTimeSeconds).toBeTypeOf('number')
  await tandem.post('pause')
  expect(await tandem.progress()).toMatchObject({ state: 'PAUSED', lagTimeSeconds: null })
  await tandem.post('resume')
  expect((await tandem.progress()).lagTimeSeconds).toBeTypeOf('number')
})

it('4.2: lagTimeSeconds stays low during a commit that is sent seconds after canCommit, and is 0 when COMMITTED', async () => {
  await app(pair.sourceClient, 'things').createIndex({ text: 1 }, { unique: true })
  await using tandem = await startInstance()
  await startSync(tandem)
  await canCommit(tandem)
  await sourceTimePasses(4)
  await using held = await holdCommand('collMod', 'app.things')
  expect(await tandem.post('commit')).toEqual(accepted)
  await held.reached()
  const finishing = await tandem.progress()
  expect(finishing.state).toBe('COMMITTING')
  expect(finishing.lagTimeSeconds).toBeLessThanOrEqual(2)
  await held.release()
  const end = await tandem.waitFor(({ state }) => state === 'COMMITTED', { timeoutSeconds: 30, what: 'committed' })
  expect(end.lagTimeSeconds).toBe(0)
  // Writes on the source after the commit do not change the lag.
  await app(pair.sourceClient, 'late').insertOne({ _id: 1 })
  expect((await tandem.progress()).lagTimeSeconds).toBe(0)
})

/** Advances the cluster time of the source by this many seconds. Only writes advance it. */
async function sourceTimePasses(seconds: number): Promise<void> {
  const write = async (): Promise<number> => {
    const { operationTime } = await pair.sourceClient.db('app').command({ insert: 'clock', documents: [{}] })
    return operationTime.getHighBits()
  }
  const from = await write()
  await vi.waitFor(async () => expect(await write()).toBeGreaterThanOrEqual(from + seconds), {
    timeout: 20_000,
    interval: 200,
  })
}

it('4.2: before the copy estimatedCopiedBytes is 0 and estimatedTotalBytes is 1', async () => {
  await app(pair.sourceClient, 'things').insertMany(numbered(10))
  await using held = await holdCommand('create', 'app.things')
  await using tandem = await startInstance()
  await startSync(tandem)
  await held.reached()
  const progress = await tandem.progress()
  expect(progress.collectionCopy).toEqual({ estimatedTotalBytes: 1, estimatedCopiedBytes: 0 })
  expect(progress).toMatchObject({ state: 'RUNNING', canCommit: false, canWrite: false })
  expect(await tandem.post('commit')).toMatchObject({ status: 409, body: { error: 'CannotCommit' } })
  await held.release()
  const { estimatedTotalBytes } = (await canCommit(tandem)).collectionCopy as { estimatedTotalBytes: number }
  expect(estimatedTotalBytes).toBeGreaterThan(1)
})

it('4.2: estimatedCopiedBytes never exceeds the total, and equals it at the end of the copy', async () => {
  await app(pair.sourceClient, 'first').insertMany(numbered(500, 0, 1000))
  await app(pair.sourceClient, 'second').insertMany(numbered(1000, 0, 1000))
  const bytes = (await sizeOf('first')) + (await sizeOf('second'))
  await using held = await holdCopy('app.second')
  await using tandem = await startInstance()
  await startSync(tandem)
  await held.reached()
  // Copied bytes are counted batch by batch.
  const first = await sizeOf('first')
  const firstCopied = await tandem.waitFor((progress) => copyOf(progress).estimatedCopiedBytes >= first, {
    timeoutSeconds: 20,
    what: 'with its first collection copied',
  })
  expect(copyOf(firstCopied).estimatedCopiedBytes).toBe(first)
  expect(copyOf(firstCopied).estimatedTotalBytes).toBeGreaterThan(bytes * 0.9)
  expect(copyOf(firstCopied).estimatedTotalBytes).toBeLessThan(bytes * 1.1)
  await held.release()
  const samples: Progress[] = []
  const end = await tandem.waitFor((progress) => samples.push(progress) > 0 && progress.canCommit, {
    timeoutSeconds: 20,
    what: 'copied',
  })
  expect(copyOf(end)).toEqual({ estimatedTotalBytes: bytes, estimatedCopiedBytes: bytes })
  for (const sample of samples) {
    expect(copyOf(sample).estimatedCopiedBytes).toBeLessThanOrEqual(copyOf(sample).estimatedTotalBytes)
  }
  // The figures stay the same after the copy: applied events do not count as copied.
  await app(pair.sourceClient, 'second').insertMany(numbered(100, 10_000, 1000))
  await arrives('second', { _id: 10_099 })
  expect(copyOf(await tandem.progress())).toEqual(copyOf(end))
  expect(copyOf(await commit(tandem))).toEqual(copyOf(end))
})

it('4.2: for an empty source estimatedCopiedBytes equals estimatedTotalBytes', async () => {
  await using tandem = await startInstance()
  await startSync(tandem)
  const { estimatedCopiedBytes, estimatedTotalBytes } = copyOf(await canCommit(tandem))
  expect(estimatedCopiedBytes).toBe(estimatedTotalBytes)
  expect(estimatedTotalBytes).toBeGreaterThan(0)
})

it('4.2: estimatedTotalBytes follows inserts on the source during the copy', async () => {
  await app(pair.sourceClient, 'things').insertMany(numbered(6000, 0, 2000))
  await totalChanges(
    () => app(pair.sourceClient, 'things').insertMany(numbered(3000, 10_000, 2000)),
    (before, total) => total > before * 1.25,
  )
})

it('4.2: estimatedTotalBytes follows deletes on the source during the copy', async () => {
  await app(pair.sourceClient, 'things').insertMany(numbered(6000, 0, 2000))
  await totalChanges(
    () => app(pair.sourceClient, 'things').deleteMany({ _id: { $gte: 3000 } }),
    (before, total) => total < before * 0.75,
  )
})

/**
 * Makes a change while the first batch of `things` is held, and waits until progress shows another total. The change affects
 * documents that the copy has not prefetched yet (it prefetches 6.2 MB).
 */
async function totalChanges(
  change: () => Promise<unknown>,
  isChanged: (before: number, total: number) => boolean,
): Promise<void> {
  await app(pair.sourceClient, 'last').insertOne({ _id: 1 })
  // The copy cannot end while this insert is held, so the test can read the progress of a running copy.
  await using last = await holdCommand('insert', 'app.last')
  await using held = await holdCopy('app.things')
  await using tandem = await startInstance()
  await startSync(tandem)
  await held.reached()
  const before = copyOf(await tandem.progress()).estimatedTotalBytes
  expect(before).toBeGreaterThan(6000 * 2000)
  await change()
  await held.release()
  const changed = await tandem.waitFor((progress) => isChanged(before, copyOf(progress).estimatedTotalBytes), {
    timeoutSeconds: 30,
    what: 'showing another total',
  })
  expect(changed).toMatchObject({ info: 'collection copy', canCommit: false })
  await last.release()
  const { estimatedCopiedBytes, estimatedTotalBytes } = copyOf(await canCommit(tandem))
  expect(estimatedCopiedBytes).toBe(estimatedTotalBytes)
  expect(isChanged(before, estimatedTotalBytes)).toBe(true)
}

async function sizeOf(collection: string): Promise<number> {
  const [sum] = await app(pair.sourceClient, collection)
    .aggregate([{ $group: { _id: null, bytes: { $sum: { $bsonSize: '$$ROOT' } } } }])
    .toArray()
  return sum?.['bytes'] as number
}

describe('facts 10: indexBuilding', () => {
  const figures = (...[indexesBuilt, totalIndexesToBuild, collectionsFinished, collectionsTotal]: number[]) => ({
    indexBuilding: { indexesBuilt, totalIndexesToBuild, collectionsFinished, collectionsTotal },
  })
  const until = (tandem: Tandem, indexesBuilt: number, totalIndexesToBuild: number) =>
    tandem.waitFor(
      ({ indexBuilding: now }) => now?.indexesBuilt === indexesBuilt && now.totalIndexesToBuild === totalIndexesToBuild,
      { timeoutSeconds: 30, what: `${indexesBuilt} of ${totalIndexesToBuild} indexes` },
    )
  /** Until the returned fail point is released, no index build on a collection with documents ends on the destination. */
  const holdBuilds = () => failPoint(pair.destinationClient, 'hangAfterStartingIndexBuild', {})

  async function seed(): Promise<void> {
    await app(pair.sourceClient, 'things').insertMany(numbered(10))
    await app(pair.sourceClient, 'things').createIndexes([
      { key: { text: 1 } },
      { key: { n: 1 }, unique: true, sparse: true },
    ])
    await app(pair.sourceClient, 'others').createIndex({ n: 1 })
    await app(pair.sourceClient, 'plain').insertOne({ _id: 1 })
  }

  it('counts all indexes of the sync, also after a restart, and includes the indexes that are being built', async () => {
    await seed()
    {
      await using tandem = await startInstance()
      await startSync(tandem)
      expect(await canCommit(tandem)).toMatchObject(figures(3, 3, 2, 2))
      expect(await tandem.stop()).toBe(0)
    }
    await using tandem = await startInstance()
    expect(await until(tandem, 3, 3)).toMatchObject(figures(3, 3, 2, 2))
    await using held = await holdBuilds()
    await app(pair.sourceClient, 'things').createIndex({ later: 1 })
    expect(await until(tandem, 3, 4)).toMatchObject(figures(3, 4, 1, 2))
    await held.release()
    expect(await until(tandem, 4, 4)).toMatchObject(figures(4, 4, 2, 2))
    expect(await commit(tandem)).toMatchObject(figures(4, 4, 2, 2))
  })

  it('shows the same counts on each instance, because the coordinator builds the indexes', async () => {
    await seed()
    await using first = await startInstance({ id: 'first' })
    await startSync(first)
    await using second = await startInstance({ id: 'second' })
    await startSync(second)
    for (const one of [first, second]) expect(await canCommit(one)).toMatchObject(figures(3, 3, 2, 2))
    await using held = await holdBuilds()
    await app(pair.sourceClient, 'things').createIndex({ later: 1 })
    for (const one of [first, second]) expect(await until(one, 3, 4)).toMatchObject(figures(3, 4, 1, 2))
    await held.release()
    for (const one of [first, second]) expect(await until(one, 4, 4)).toMatchObject(figures(4, 4, 2, 2))
  })

  it('is absent with buildIndexes never', async () => {
    await seed()
    await using tandem = await startInstance()
    await startSync(tandem, { buildIndexes: 'never', verification: { enabled: false } })
    expect(await canCommit(tandem)).not.toHaveProperty('indexBuilding')
  })
})

it('facts 10: pingLatencyMs is at least 1, -1 while pings fail, and absent while PAUSED', async () => {
  await using tandem = await startInstance()
  await startSync(tandem)
  const until = (condition: (source: number, destination: number) => boolean, what: string) =>
    tandem.waitFor(
      ({ source, destination }) => condition(source?.pingLatencyMs ?? 0, destination?.pingLatencyMs ?? 0),
      { timeoutSeconds: 30, what },
    )
  await until((source, destination) => source >= 1 && destination >= 1, 'both latencies')
  {
    await using _ = await failPoint(pair.sourceClient, 'failCommand', { failCommands: ['ping'], errorCode: 91 })
    await until((source, destination) => source === -1 && destination >= 1, 'a failed ping of the source')
  }
  await until((source, destination) => source >= 1 && destination >= 1, 'both latencies again')
  await tandem.post('pause')
  const paused = await tandem.progress()
  expect(paused).not.toHaveProperty('source')
  expect(paused).not.toHaveProperty('destination')
})
