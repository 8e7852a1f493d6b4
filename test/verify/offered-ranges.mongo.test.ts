import { UUID } from 'mongodb'
import { afterEach, expect, it, onTestFinished, vi } from 'vitest'
import { Catalog } from '../../src/domain/catalog.ts'
import { type InitialCompareMethod, initialCompareMethods } from '../../src/domain/compare-method.ts'
import { deferred } from '../../src/domain/deferred.ts'
import type { OwnerToken } from '../../src/domain/owner.ts'
import { appendOplogNote } from '../../src/mongo/oplog-note.ts'
import { RangeClaims } from '../../src/mongo/range-claims.ts'
import { Selection } from '../../src/mongo/selection.ts'
import { SharedStream } from '../../src/mongo/shared-stream.ts'
import { StoredDocuments } from '../../src/mongo/stored-documents.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { VerificationStore } from '../../src/mongo/verification-store.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import { OfferedComparison } from '../../src/verify/compare-offered.ts'
import { OfferedRanges, type OfferingScan, type Shareable } from '../../src/verify/offered-ranges.ts'
import { Verifier } from '../../src/verify/verifier.ts'
import { emptiedClusters, type TwoClusters } from '../apply/two-clusters.ts'
import { failPoint } from '../support/fail-point.ts'

/** A verifier whose first pass is shared with other instances: here they are objects in the same process. */

const names = Array.from({ length: 40 }, (_, number) => `c${number}`)
const never = new AbortController().signal
const dead: OwnerToken = 'dead#1'
const patience = { timeout: 30_000, interval: 20 }

let two: TwoClusters
emptiedClusters((clusters) => {
  two = clusters
})

/**
 * Stops what a test has started, also after the test has failed. Otherwise it would work on the data of the next test.
 */
const ends: (() => Promise<unknown>)[] = []
afterEach(async () => {
  await Promise.all(ends.splice(0).map((end) => end()))
})

/** Lets the coordinator read no further until `released` resolves, so that it does not compare everything by itself. */
class HeldThrottle extends Throttle {
  readonly #released: Promise<unknown>

  constructor(released: Promise<unknown>) {
    super(3)
    this.#released = released
  }

  override async earned(signal: AbortSignal): Promise<void> {
    const stopped = new Promise((resolve) => signal.addEventListener('abort', resolve, { once: true }))
    await Promise.race([this.#released, stopped])
    await super.earned(signal)
  }
}

const claimsOf = () => new RangeClaims(new StoredDocuments(two.destination, two.context))
const offers = () => two.destinationClient.db(two.destination.metadataDatabase).collection('verificationClaims')

/** Creates collections, each with a document that only the source has, before the verifier's streams begin. */
async function differingCatalog(): Promise<Catalog> {
  const catalog = new Catalog()
  for (const name of names) {
    await two.sourceClient
      .db('app')
      .collection<{ _id: number }>(name)
      .insertMany([{ _id: 1 }, { _id: 2 }])
    await two.destinationClient.db('app').collection<{ _id: number }>(name).insertOne({ _id: 1 })
    catalog.add(await two.entryOf('app', name))
  }
  for (const cluster of [two.source, two.destination]) await appendOplogNote(cluster, 'test')
  return catalog
}

class CountingClaims extends RangeClaims {
  /** The number of exchanges that have begun. */
  exchanges = 0

  override until<T>(signal: AbortSignal, work: (claims: RangeClaims) => Promise<T>) {
    this.exchanges += 1
    return super.until(signal, work)
  }
}

/** How all instances of a test compare. */
let compareMethod: InitialCompareMethod = 'binary'

interface VerifierOptions {
  isExpired?: (owner: OwnerToken) => boolean
  /** Until this promise resolves, the verifier's instance compares no range to its end. */
  until?: Promise<unknown>
}

function verifierOf(catalog: Catalog, { isExpired = () => false, until = Promise.resolve() }: VerifierOptions = {}) {
  const scanned = deferred<void>()
  const store = new VerificationStore(two.destination, two.context)
  const own: string[] = []
  const claims = new CountingClaims(new StoredDocuments(two.destination, two.context))
  const verifier = new Verifier({
    clusters: two,
    store,
    metadata: two.metadata,
    context: two.context,
    selection: new Selection(two.source, { includeNamespaces: null, excludeNamespaces: null }),
    sharedStream: new SharedStream(),
    throttle: new HeldThrottle(until),
    roundTripMS: () => 1,
    compareMethod,
    epoch: 1,
    catalog: () => catalog,
    appliedTime: () => two.source.latest,
    helpers: { claims, others: () => 1, isExpired },
    onCompared: ({ collection }) => own.push(collection),
    onInitiallyVerified: () => scanned.resolve(),
  })
  const run = () => {
    const running = verifier.run()
    ends.push(async () => {
      verifier.stop()
      await running
    })
  }
  return { verifier, run, claims, own, scanned: scanned.promise }
}

/** Another instance, which compares until it is stopped. */
function helperOf(catalog: Catalog, owner: OwnerToken, onCompared: () => void = () => {}) {
  const stop = new AbortController()
  const context = { ...two.context, signal: stop.signal }
  const stored = new StoredDocuments(two.destination, context)
  const figures = { ranges: 0, claims: 0 }
  const run = new OfferedComparison({
    clusters: two,
    claims: new RangeClaims(stored),
    releases: claimsOf(),
    store: new VerificationStore(two.destination, context),
    context,
    catalog: () => catalog,
    reload: async () => {},
    throttle: new Throttle(3),
    roundTripMS: () => 1,
    compareMethod,
    owner,
    claimNumbers: { last: () => figures.claims, next: () => ++figures.claims },
    term: () => 1,
    isExpired: () => false,
    compared: () => {
      figures.ranges += 1
      onCompared()
    },
  }).run()
  ends.push(async () => {
    stop.abort()
    await run
  })
  return figures
}

async function expectAllNamed(verifier: Verifier): Promise<void> {
  const result = await verifier.issueVerdict()
  const { mismatches, total } = (await result?.explain()) ?? { mismatches: [], total: -1 }
  expect(total).toBe(names.length)
  const named = mismatches.map(({ namespace, kind, id }) => `${namespace} ${kind} ${JSON.stringify(id)}`)
  expect(named.sort()).toEqual(names.map((name) => `app.${name} missing {"$numberInt":"2"}`).sort())
}

async function expectReadOnce(): Promise<void> {
  const ranges = two.destinationClient.db(two.destination.metadataDatabase).collection('verifiedRanges')
  expect(await ranges.countDocuments({ reads: 1 })).toBe(names.length)
  expect(await ranges.countDocuments()).toBe(names.length)
}

it.each(initialCompareMethods)(
  'names all differences, whichever instance has compared their ranges (%s), and leaves no offer',
  async (method) => {
    compareMethod = method
    onTestFinished(() => {
      compareMethod = 'binary'
    })
    const catalog = await differingCatalog()
    const [b, c] = [deferred<void>(), deferred<void>()]
    const { verifier, run, own, scanned } = verifierOf(catalog, { until: Promise.all([b.promise, c.promise]) })
    const helpers = [helperOf(catalog, 'b#1', b.resolve), helperOf(catalog, 'c#1', c.resolve)]
    run()
    await scanned
    expect(await offers().countDocuments()).toBe(0)
    const ranges = helpers.reduce((sum, helper) => sum + helper.ranges, 0)
    expect(own.length + ranges).toBe(names.length)
    expect(verifier.report.source).toMatchObject({ scannedCollectionCount: names.length })
    await expectReadOnce()
    await expectAllNamed(verifier)
  },
)

it('is not complete while an instance has claimed ranges, and compares them when that instance has ended', async () => {
  const catalog = await differingCatalog()
  let hasEnded = false
  const isClaimed = deferred<void>()
  const isExpired = (owner: OwnerToken): boolean => hasEnded && owner === dead
  const { verifier, run, claims, own, scanned } = verifierOf(catalog, { isExpired, until: isClaimed.promise })
  let isScanned = false
  void scanned.then(() => {
    isScanned = true
  })
  run()
  const claimed = await vi.waitFor(async () => {
    const found = await claimsOf().claim(dead, 1, 2, 1, () => false)
    expect(found).toHaveLength(2)
    return found
  }, patience)
  isClaimed.resolve()
  const inClaims = claimed.flatMap(({ ranges }) => ranges).length
  await vi.waitFor(() => expect(own.length).toBe(names.length - inClaims), patience)
  // Several exchanges later, the claimed ranges are still open.
  const { exchanges } = claims
  await vi.waitFor(() => expect(claims.exchanges).toBeGreaterThan(exchanges + 3), patience)
  expect(isScanned).toBe(false)
  hasEnded = true
  await scanned
  expect(own).toHaveLength(names.length)
  // The ended instance completes its offers too late.
  for (const offer of claimed) {
    await claimsOf().complete(
      offer,
      offer.ranges.map(() => ({ source: 2, destination: 2, bytes: 1 })),
    )
  }
  expect(await offers().countDocuments()).toBe(0)
  await expectReadOnce()
  await expectAllNamed(verifier)
})

it('counts no result of an earlier pass, and no other instance claims an offer of an earlier coordinator', async () => {
  const catalog = await differingCatalog()
  const claims = claimsOf()
  const [entry] = catalog.entries()
  const range = {
    ...{ collection: entry?.uuid as string, destination: entry?.destinationUUID as string, ordinal: 0 },
    ...{ from: null, to: null, sourceTime: two.source.latest },
  }
  const offer = { pass: 'earlier', number: 1, ranges: [range], destinationTime: two.destination.latest }
  const { verifier, run, own, scanned } = verifierOf(catalog)
  await claims.offer([offer], 0)
  const [claimed] = await claims.claim(dead, 1, 1, 0, () => false)
  if (!claimed) throw new Error('the offer was not claimed')
  run()
  await scanned
  await claims.complete(claimed, [{ source: 2, destination: 2, bytes: 1 }])
  expect(await offers().countDocuments()).toBe(0)
  expect(own).toHaveLength(names.length)
  // A delayed write of the earlier coordinator.
  await claims.offer([{ ...offer, number: 2 }], 0)
  expect(await claims.claim('b#1', 1, 10, 1, () => false)).toEqual([])
  await expectAllNamed(verifier)
})

it('compares what another instance cannot, because that instance does not know the collections', async () => {
  const catalog = await differingCatalog()
  const { verifier, run, own, scanned } = verifierOf(catalog)
  const helper = helperOf(new Catalog(), 'b#1')
  run()
  await scanned
  expect(helper).toMatchObject({ ranges: 0 })
  expect(own).toHaveLength(names.length)
  await expectAllNamed(verifier)
})

it('gets ranges back from an instance that stops, and a document that is equal by then is no difference', async () => {
  const catalog = await differingCatalog()
  const isClaimed = deferred<void>()
  const { verifier, run, own, scanned } = verifierOf(catalog, { until: isClaimed.promise })
  run()
  await vi.waitFor(async () => expect(await claimsOf().claim('b#1', 1, 3, 1, () => false)).toHaveLength(3), patience)
  await claimsOf().release('b#1', 1)
  isClaimed.resolve()
  await scanned
  expect(own).toHaveLength(names.length)
  for (const name of names)
    await two.destinationClient.db('app').collection<{ _id: number }>(name).insertOne({ _id: 2 })
  expect((await verifier.issueVerdict())?.total).toBe(0)
})

it('stops while it retries an exchange with the other instances', async () => {
  const catalog = await differingCatalog()
  const { verifier, run } = verifierOf(catalog, { until: new Promise(() => {}) })
  run()
  await vi.waitFor(async () => expect(await offers().countDocuments()).toBeGreaterThan(0), patience)
  const namespace = `${two.destination.metadataDatabase}.verificationClaims`
  const before = two.context.retried.length
  const retried = () => two.context.retried.slice(before).map(({ what }) => what)
  const data = { failCommands: ['find'], errorCode: 262, namespace }
  await using _ = await failPoint(two.destinationClient, 'failCommand', data)
  await vi.waitFor(() => expect(retried()).toContain(`reading ${namespace}`), patience)
  verifier.stop()
  await verifier.ended
})

it('compares ranges that an instance has claimed and then makes no progress with', async () => {
  let nowMS = 0
  const claims = claimsOf()
  const parts = { term: 1, destinationTime: two.destination.latest, isExpired: () => false, ownRanges: () => 1 }
  const offered = new OfferedRanges({ ...parts, claims, others: () => 1, now: () => nowMS })
  const range = {
    collection: fromUuid(new UUID()),
    destination: fromUuid(new UUID()),
    from: null,
    to: null,
    sourceTime: two.source.latest,
  }
  const queue: Shareable[] = Array.from({ length: 4 }, (_, ordinal) => ({ ...range, ordinal, estimatedBytes: 1 }))
  const back: number[] = []
  const scan: OfferingScan = {
    get waiting() {
      return queue.length
    },
    get isIdle() {
      return queue.length === 0
    },
    takeLast: () => queue.pop() ?? null,
    accept: () => {},
    giveBack: ({ ordinal }) => back.push(ordinal),
  }
  await offered.exchange(scan, never)
  expect(await claims.claim('b#1', 1, 10, 1, () => false)).not.toEqual([])
  nowMS += 61_000
  await offered.exchange(scan, never)
  // The coordinator still has ranges of its own.
  expect(back).toEqual([])
  queue.length = 0
  await offered.exchange(scan, never)
  expect(back).toEqual([])
  nowMS += 61_000
  await offered.exchange(scan, never)
  await offered.exchange(scan, never)
  expect(offered.isOpen).toBe(false)
  expect(back.length).toBeGreaterThan(0)
  expect(await offers().countDocuments()).toBe(0)
})

it('drops the ranges of a collection that was created again on the destination', async () => {
  const catalog = await differingCatalog()
  const isClaimed = deferred<void>()
  const { verifier, run, scanned } = verifierOf(catalog, { until: isClaimed.promise })
  run()
  const [offer] = await vi.waitFor(async () => {
    const found = await claimsOf().claim('b#1', 1, 1, 1, () => false)
    expect(found).toHaveLength(1)
    return found
  }, patience)
  const claimed = catalog.get(offer?.ranges[0]?.collection as string)
  if (!offer || !claimed) throw new Error('nothing was claimed')
  const app = two.destinationClient.db('app')
  await app.dropCollection(claimed.name)
  await app.collection<{ _id: number }>(claimed.name).insertOne({ _id: 1 })
  claimed.destinationUUID = (await two.entryOf('app', claimed.name)).destinationUUID
  await claimsOf().complete(
    offer,
    offer.ranges.map((_, at) => (at === 0 ? { source: 2, destination: 2, bytes: 1 } : null)),
  )
  isClaimed.resolve()
  await scanned
  await expectAllNamed(verifier)
})
