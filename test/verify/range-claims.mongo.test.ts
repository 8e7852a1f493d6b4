import { UUID } from 'mongodb'
import { beforeEach, expect, it } from 'vitest'
import { metadataDatabase } from '../../src/domain/namespace.ts'
import { type Offer, RangeClaims } from '../../src/mongo/range-claims.ts'
import { StoredDocuments } from '../../src/mongo/stored-documents.ts'
import { fromUuid } from '../../src/mongo/uuid.ts'
import { OfferedRanges, type OfferingScan, type Shareable } from '../../src/verify/offered-ranges.ts'
import { testContext } from '../mongo/clusters.ts'
import { oneSet } from '../mongo/one-set.ts'

/** The stored offers of ranges, when writes are repeated and when `_id`s are large. */

const one = oneSet()
const MiB = 1024 * 1024
const never = new AbortController().signal
const stored = () => one.client.db(metadataDatabase).collection('verificationClaims')
const claimsOf = () => new RangeClaims(new StoredDocuments(one.cluster, testContext()))
beforeEach(async () => {
  await one.client.db(metadataDatabase).dropDatabase()
})

const unbounded = {
  ...{ collection: fromUuid(new UUID()), destination: fromUuid(new UUID()) },
  ...{ from: null, to: null, sourceTime: 1n },
}
const offer: Offer = { pass: 'p', number: 1, ranges: [{ ...unbounded, ordinal: 0 }], destinationTime: 1n }
const results = [{ source: 2, destination: 2, bytes: 1 }]

async function claimed(owner = 'b#1') {
  const claims = claimsOf()
  await claims.offer([offer], 1)
  const [found] = await claims.claim(owner, 1, 1, 1, () => false)
  if (!found) throw new Error('the offer was not claimed')
  return { claims, found }
}

it('an offer that is sent again resets neither its claim nor its results', async () => {
  const { claims, found } = await claimed()
  await claims.offer([offer], 1)
  expect(await claims.states('p')).toEqual([{ number: 1, owner: 'b#1', results: null }])
  await claims.complete(found, results)
  await claims.offer([offer], 1)
  expect(await claims.states('p')).toEqual([{ number: 1, owner: 'b#1', results }])
  expect(await stored().findOne()).toMatchObject({ schemaVersion: 1, pass: 'p', term: 1 })
})

it('results that are sent again count as stored, and results for a lost claim do not', async () => {
  const { claims, found } = await claimed()
  expect(await claims.complete(found, results)).toBe(true)
  expect(await claims.complete(found, results)).toBe(true)
  expect(await claims.complete({ ...found, claim: 2 }, results)).toBe(false)
  await claims.remove('p', [1])
  expect(await claims.complete(found, results)).toBe(false)
  const lost = await claimed()
  await claims.takeBack('p', [{ number: 1, owner: 'b#1' }])
  expect(await claims.complete(lost.found, results)).toBe(false)
  expect(await stored().countDocuments()).toBe(0)
})

it('ranges with large _ids are spread over offers that can be stored, and one whose own bounds are too large is not offered', async () => {
  const parts = { term: 1, destinationTime: 1n, isExpired: () => false, ownRanges: () => 1 }
  const offered = new OfferedRanges({ ...parts, claims: claimsOf(), others: () => 1 })
  const large = (ordinal: number, bytes: number): Shareable => {
    return { ...unbounded, from: Buffer.alloc(bytes, ordinal), ordinal, estimatedBytes: 1 }
  }
  const queue = [...Array.from({ length: 160 }, (_, ordinal) => large(ordinal, MiB)), large(160, 15 * MiB)]
  const declined: number[] = []
  const scan: OfferingScan = {
    get waiting() {
      return queue.length
    },
    isIdle: false,
    takeLast: () => queue.pop() ?? null,
    accept: () => {},
    giveBack: (range, isDeclined) => {
      if (isDeclined) declined.push(range.ordinal)
      queue.unshift(range)
    },
  }
  await offered.exchange(scan, never)
  expect(declined).toEqual([160])
  const found = await stored().find().sort({ number: 1 }).toArray()
  expect(found.length).toBeGreaterThan(1)
  expect(found.flatMap(({ ranges }) => ranges.map(({ ordinal }: Shareable) => ordinal))).toEqual(
    Array.from({ length: 2 * found.length }, (_, at) => 159 - at),
  )
})
