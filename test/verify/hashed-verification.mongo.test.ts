import { Double, Int32, Long, type MongoClient } from 'mongodb'
import { expect, it, onTestFinished, vi } from 'vitest'
import { checkHashes } from '../../src/checks/verification.ts'
import { scanLimitMS } from '../../src/documents/read-documents.ts'
import { Catalog, type CatalogEntry } from '../../src/domain/catalog.ts'
import { deferred } from '../../src/domain/deferred.ts'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { sampleHash } from '../../src/mongo/document-hash.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { SharedStream } from '../../src/mongo/shared-stream.ts'
import { VerificationStore } from '../../src/mongo/verification-store.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { FallbackLog } from '../../src/verify/fallback-log.ts'
import { Verifier } from '../../src/verify/verifier.ts'
import { emptiedClusters, sourceName, type TwoClusters } from '../apply/two-clusters.ts'
import { verifying } from '../machines/instance-model.ts'
import { failPoint } from '../support/fail-point.ts'
import { compareBy } from './compare-by.ts'

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

interface Row {
  _id: number
  v: unknown
}

const rows = (client: MongoClient) => client.db('app').collection<Row>('rows', { promoteValues: false })

async function have(source: Row[], destination: Row[]): Promise<void> {
  await rows(two.sourceClient).insertMany(source)
  await rows(two.destinationClient).insertMany(destination)
}

/** Starts a verifier that compares hashes in its first pass, and waits for the end of that pass. */
async function verified(): Promise<Verifier> {
  for (const cluster of [two.source, two.destination]) await appendOplogNote(cluster, 'test')
  const catalog = new Catalog()
  catalog.add(await two.entryOf('app', 'rows'))
  const scanned = deferred<void>()
  const verifier = new Verifier({
    clusters: two,
    store: new VerificationStore(two.destination, two.context),
    metadata: two.metadata,
    context: two.context,
    selection: new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null }),
    sharedStream: new SharedStream(),
    throttle: new Throttle(3),
    roundTripMS: () => 1,
    compareMethod: 'toHashedIndexKey',
    epoch: 1,
    catalog: () => catalog,
    appliedTime: () => two.source.latest,
    helpers: null,
    onInitiallyVerified: () => scanned.resolve(),
  })
  runs.push(verifier.run())
  await scanned.promise
  return verifier
}
const runs: Promise<void>[] = []

async function differencesOf(verifier: Verifier): Promise<unknown[]> {
  const result = await verifier.issueVerdict()
  const { mismatches = [] } = (await result?.explain()) ?? {}
  verifier.stop()
  await Promise.all(runs.splice(0))
  return mismatches.map(({ kind, id, field }) => ({ kind, id: (id as { $numberInt: string }).$numberInt, field }))
}

it('names each document that is missing, extra or different, with the field, after a first pass by hashes', async () => {
  const many = Array.from({ length: 3_000 }, (_, _id) => ({ _id, v: { n: new Double(_id + 0.5) } }))
  const source = many.filter(({ _id }) => _id !== 11)
  const destination = many
    .filter(({ _id }) => _id !== 7)
    .map((row) => (row._id === 13 ? { _id: 13, v: { n: new Double(13.25) } } : row))
  await have(source, destination)
  const found = await differencesOf(await verified())
  expect(found).toHaveLength(3)
  expect(found).toEqual(
    expect.arrayContaining([
      { kind: 'missing', id: '7', field: undefined },
      { kind: 'extra', id: '11', field: undefined },
      { kind: 'content', id: '13', field: 'v.n' },
    ]),
  )
})

it('finds a number of another type only if its size differs, or if the document changes after the first pass', async () => {
  await have(
    [
      { _id: 1, v: new Int32(5) },
      { _id: 2, v: Long.fromNumber(5) },
      { _id: 3, v: Long.fromNumber(5) },
    ],
    [
      { _id: 1, v: Long.fromNumber(5) },
      { _id: 2, v: new Double(5) },
      { _id: 3, v: new Double(5) },
    ],
  )
  const verifier = await verified()
  // A change of both clusters by the same operator, after which the documents differ in the type of `v` only.
  for (const client of [two.sourceClient, two.destinationClient]) {
    await rows(client).updateOne({ _id: 3 }, { $set: { w: 1 } })
  }
  expect(await differencesOf(verifier)).toEqual([
    { kind: 'content', id: '1', field: 'v' },
    { kind: 'content', id: '3', field: 'v' },
  ])
})

/** Two documents on each cluster. Those with `_id` 2 differ, and only a comparison as bytes finds that. */
async function differingInType(): Promise<void> {
  await have(
    [
      { _id: 1, v: 1 },
      { _id: 2, v: Long.fromNumber(5) },
    ],
    [
      { _id: 1, v: 1 },
      { _id: 2, v: new Double(5) },
    ],
  )
  expect((await compareBy(two, 'toHashedIndexKey', await two.entryOf('app', 'rows'))).suspects).toEqual([])
}

/** Fails unless the comparison reads bytes and logs why it does not read hashes. */
async function comparesBytes(why: RegExp): Promise<void> {
  const logged: unknown[] = []
  const fallbacks = new FallbackLog({ journal: (message, fields) => logged.push([message, fields]) })
  const { suspects, documents } = await compareBy(two, 'toHashedIndexKey', await two.entryOf('app', 'rows'), fallbacks)
  expect(suspects.map((idElement) => idElement.readInt32LE(5))).toEqual([2])
  expect(documents).toEqual({ source: 2, destination: 2 })
  expect(logged).toEqual([['hashes not read', { namespace: 'app.rows', error: expect.stringMatching(why) }]])
}

it.each([
  // The error of 6.0 for a document whose key string has more than 16 MB.
  ['it cannot hash a document', 16_493],
  ['it has no time left', 50],
])('compares a range as bytes if a server reports that %s', async (_, errorCode) => {
  await differingInType()
  const data = { failCommands: ['find'], namespace: 'app.rows', errorCode, appName: sourceName }
  await using _point = await failPoint(two.sourceClient, 'failCommand', data, { times: 1 })
  await comparesBytes(/failCommand/)
})

it('compares a range as bytes if a server does not send its hashes within the time limit of this process', async () => {
  await differingInType()
  // The first read of each cluster has a short limit, and the source does not answer within it.
  const timeout = AbortSignal.timeout.bind(AbortSignal)
  let shortened = 0
  const limits = vi.spyOn(AbortSignal, 'timeout').mockImplementation((limitMS) => {
    if (limitMS !== scanLimitMS || shortened === 2) return timeout(limitMS)
    shortened += 1
    return timeout(100)
  })
  onTestFinished(() => limits.mockRestore())
  const data = { failCommands: ['find'], namespace: 'app.rows', blockConnection: true, blockTimeMS: 1_000 }
  await using _ = await failPoint(two.sourceClient, 'failCommand', { ...data, appName: sourceName }, { times: 1 })
  await comparesBytes(/time/i)
  expect(shortened).toBe(2)
})

it('logs one line for each collection and pass', async () => {
  const lines: unknown[] = []
  const fallbacks = new FallbackLog({ journal: (_, fields) => lines.push(fields) })
  const [first, second] = [
    { uuid: 'a', database: 'app', name: 'a' },
    { uuid: 'b', database: 'app', name: 'b' },
  ] as unknown as [CatalogEntry, CatalogEntry]
  for (const entry of [first, first, second, first]) fallbacks.record(entry, new Error('too large'))
  expect(lines).toEqual(['app.a', 'app.b'].map((namespace) => ({ namespace, error: 'too large' })))
})

it('a start by hashes is refused if a cluster cannot compute them, or if the clusters compute different ones', async () => {
  expect(await sampleHash(two.source)).toMatch(/^-?\d+$/)
  const byHashes = {
    ...verifying,
    verification: { enabled: true, initialCompareMethod: 'toHashedIndexKey' as const },
  }
  const facts = { source: { version: '6.0.27' }, destination: { version: '6.0.4' } }
  const check = async (source: Cluster, destination: Cluster, configuration = byHashes) => {
    const clusters = { configuration, source, destination, facts } as unknown as Parameters<typeof checkHashes>[0]
    return (await checkHashes(clusters)).map(({ name, message }) => `${name}: ${message}`)
  }
  expect(await check(two.source, two.destination)).toEqual([])
  // What a server without the operator reports.
  const unable = { read: () => two.destination.read('admin', noOperator) } as unknown as Cluster
  const [refused] = await check(two.source, unable)
  expect(refused).toMatch(/^VerificationNotSupported: verification.initialCompareMethod: .*the destination \(6\.0\.4\)/)
  const reply = { cursor: { firstBatch: [{ h: 7 }] } }
  const another = { read: async () => reply } as unknown as Cluster
  expect(await check(another, two.destination)).toEqual([expect.stringContaining('different hashes')])
  expect(await check(unable, unable, verifying as typeof byHashes)).toEqual([])
})

const noOperator = {
  aggregate: 1,
  pipeline: [{ $documents: [{ a: 1 }] }, { $project: { h: { $operatorOfNoServer: 1 } } }],
  cursor: {},
}
