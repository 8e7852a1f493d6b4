import { expect, it, onTestFinished, vi } from 'vitest'
import { Catalog, type CatalogEntry } from '../../src/domain/catalog.ts'
import { clusterTime, secondsOf } from '../../src/domain/cluster-time.ts'
import { deferred } from '../../src/domain/deferred.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { RangeClaims, type RangeResult } from '../../src/mongo/range-claims.ts'
import { StoredDocuments } from '../../src/mongo/stored-documents.ts'
import { VerificationStore } from '../../src/mongo/verification-store.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { OfferedComparison } from '../../src/verify/compare-offered.ts'
import { OfferedRanges } from '../../src/verify/offered-ranges.ts'
import { Scan } from '../../src/verify/scan.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { failPoint } from '../support/fail-point.ts'

/** What an instance reads for the coordinator's verifier, what it counts, and how it stops. */

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

const patience = { timeout: 30_000, interval: 20 }
const namespace = () => `${two.destination.metadataDatabase}.verificationClaims`
const claimsOf = () => new RangeClaims(new StoredDocuments(two.destination, two.context))
const app = () => two.sourceClient.db('app').collection<{ _id: number }>('things')

async function sameOnBoth(name = 'things'): Promise<CatalogEntry> {
  for (const client of [two.sourceClient, two.destinationClient]) {
    await client.db('app').collection<{ _id: number }>(name).insertOne({ _id: 1 })
  }
  await appendOplogNote(two.source, 'test')
  return await two.entryOf('app', name)
}

/** Offers one range of the collection. */
async function offer({ uuid, destinationUUID }: CatalogEntry, sourceTime = two.source.latest): Promise<void> {
  const range = {
    collection: uuid,
    destination: destinationUUID as string,
    ordinal: 0,
    from: null,
    to: null,
    sourceTime,
  }
  await claimsOf().offer([{ pass: 'p', number: 1, ranges: [range], destinationTime: 1n }], 1)
}

/** An instance that compares until it is stopped. */
function helperOf(entry: CatalogEntry, throttle = new Throttle(3)) {
  const catalog = new Catalog()
  catalog.add(entry)
  const stop = new AbortController()
  const retried: string[] = []
  const context = {
    ...two.context,
    signal: stop.signal,
    onRetry: (_: string, error: unknown) => void retried.push(String(error)),
  }
  const compared: RangeResult[] = []
  let claims = 0
  const stored = new StoredDocuments(two.destination, context)
  const run = new OfferedComparison({
    clusters: two,
    claims: new RangeClaims(stored),
    releases: claimsOf(),
    store: new VerificationStore(two.destination, context),
    context,
    catalog: () => catalog,
    reload: async () => {},
    throttle,
    roundTripMS: () => 1,
    compareMethod: 'binary',
    owner: 'b#1',
    claimNumbers: { last: () => claims, next: () => ++claims },
    term: () => 1,
    isExpired: () => false,
    compared: (result) => compared.push(result),
  }).run()
  const end = async (): Promise<void> => {
    stop.abort()
    await run
  }
  onTestFinished(end)
  return { compared, retried, end }
}

it.each(['the time of the offer', 'the start of a later convergence of the collection'])(
  'reads the source at %s or later',
  async (which) => {
    const entry = await sameOnBoth()
    const later = clusterTime(secondsOf(two.source.latest) + 3, 1)
    if (which === 'the time of the offer') await offer(entry, later)
    else await offer(Object.assign(entry, { convergedFrom: later }))
    const { compared, retried } = helperOf(entry)
    // The server has not observed this time yet, and refuses the read.
    await vi.waitFor(() => expect(retried.join()).toContain('greater than the current clusterTime'), patience)
    expect(compared).toEqual([])
    await app().insertOne({ _id: 2 })
    await vi.waitFor(async () => {
      await appendOplogNote(two.source, 'test')
      expect(two.source.latest).toBeGreaterThan(later)
    }, patience)
    await vi.waitFor(() => expect(compared).toMatchObject([{ source: 2, destination: 1 }]), patience)
  },
)

it.each([
  ['secondaryPreferred', 'its last reply from the source'],
  ['primary', 'the start of the verifier'],
] as const)('with the read preference %s, the coordinator offers ranges as of %s', async (preference, _) => {
  const catalog = new Catalog()
  for (const name of ['a', 'b', 'c', 'd', 'e', 'f']) catalog.add(await sameOnBoth(name))
  const [notBefore, known] = [clusterTime(1, 1), two.source.latest]
  two.source.copyReadPreference = preference
  const held = deferred<void>()
  const stop = new AbortController()
  const parts = { term: 1, destinationTime: 1n, isExpired: () => false, ownRanges: () => 1 }
  const scan = new Scan(
    {
      clusters: two,
      metadata: two.metadata,
      context: { ...two.context, signal: stop.signal },
      catalog: () => catalog,
      notBefore: { source: notBefore, destination: 1n },
      suspect: () => {},
      waitForCapacity: () => held.promise,
      readAhead: () => ({ ranges: 1, batchBytes: 2 * 1024 * 1024 }),
      compareMethod: 'binary',
      done: () => {},
      offered: new OfferedRanges({ ...parts, claims: claimsOf(), others: () => 1 }),
    },
    [],
  )
  const run = scan.run().catch(() => {})
  onTestFinished(async () => {
    two.source.copyReadPreference = 'primary'
    stop.abort()
    held.resolve()
    await run
  })
  const [claimed] = await vi.waitFor(async () => {
    const found = await claimsOf().claim('b#1', 1, 1, 1, () => false)
    expect(found).toHaveLength(1)
    return found
  }, patience)
  const time = claimed?.ranges[0]?.sourceTime
  if (preference === 'primary') expect(time).toBe(notBefore)
  else expect(time).toBeGreaterThanOrEqual(known)
})

it('does not count a range whose claim it has lost', async () => {
  const entry = await sameOnBoth()
  await offer(entry)
  const held = deferred<void>()
  const waits = deferred<void>()
  const throttle = new Throttle(3)
  throttle.earned = async () => {
    waits.resolve()
    await held.promise
  }
  const { compared } = helperOf(entry, throttle)
  await waits.promise
  await claimsOf().takeBack('p', [{ number: 1, owner: 'b#1' }])
  held.resolve()
  // The instance has sent the result of this range when it counts the next one.
  await claimsOf().clear()
  await app().insertOne({ _id: 2 })
  await offer(entry)
  await vi.waitFor(() => expect(compared.length).toBeGreaterThan(0), patience)
  expect(compared).toMatchObject([{ source: 2 }])
})

it('stops although the destination refuses every write that gives claims back', async () => {
  const entry = await sameOnBoth()
  await offer(entry)
  const throttle = new Throttle(3)
  const waits = deferred<void>()
  throttle.earned = async (signal) => {
    waits.resolve()
    await new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
  }
  const { end } = helperOf(entry, throttle)
  await waits.promise
  const data = { failCommands: ['update'], errorCode: 262, namespace: namespace() }
  await using _ = await failPoint(two.destinationClient, 'failCommand', data)
  await end()
})
