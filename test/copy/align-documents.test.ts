import fc from 'fast-check'
import { Int32, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { type AbsentOn, Alignment, type Side } from '../../src/copy/align-documents.ts'
import { idElementOf, identityKey } from '../../src/documents/identity.ts'
import { rawDocument } from '../support/bson-values.ts'

/** The version of each document by its `_id`, for each side. Equal versions are equal documents. */
type Sides = Record<Side, Map<number, number>>

const documentOf = (id: number, version: number): Buffer =>
  rawDocument([
    ['_id', new Int32(id)],
    ['version', new Int32(version)],
  ])

/**
 * Returns the sort key of an `_id`. Both sides return the `_id`s in the same order, which does not follow from their values here. In
 * the same way, the alignment does not know the server's order of types.
 */
const anyOrder = (id: number): number => (id * 7_919) % 1_009

function streamOf(side: Map<number, number>): Buffer[] {
  const ids = [...side.keys()].sort((one, other) => anyOrder(one) - anyOrder(other))
  return ids.map((id) => documentOf(id, side.get(id) ?? 0))
}

const keys = (idElements: Buffer[]): string[] => idElements.map(identityKey).sort()
const keysOf = (documents: Buffer[]): string[] => keys(documents.map(idElementOf))

interface Outcome {
  missing: string[]
  differing: string[]
  equal: number
  /** The number of `_id`s that were requested from the clusters. */
  asked: number
}

/** Aligns both streams in batches of the given sizes, as `convergeSegment` does. */
async function alignAll(sides: Sides, sizes: Record<Side, number>): Promise<Outcome> {
  const outcome: Outcome = { missing: [], differing: [], equal: 0, asked: 0 }
  const absentOn: AbsentOn = async (side, idElements) => {
    outcome.asked += idElements.length
    const existing = new Set(keysOf(streamOf(sides[side])))
    return new Set(idElements.map(identityKey).filter((key) => !existing.has(key)))
  }
  const alignment = new Alignment(absentOn)
  const streams = { source: streamOf(sides.source), destination: streamOf(sides.destination) }
  const positions = { source: 0, destination: 0 }
  const undecided = { source: { documents: [] as Buffer[], at: 0 }, destination: { documents: [] as Buffer[], at: 0 } }
  const fill = (side: Side): boolean => {
    if (undecided[side].at < undecided[side].documents.length) return true
    const documents = streams[side].slice(positions[side], positions[side] + sizes[side])
    positions[side] += documents.length
    undecided[side] = { documents, at: 0 }
    return documents.length > 0
  }
  for (;;) {
    const [left, right] = [fill('source'), fill('destination')]
    if (!left && !right) break
    if (left && right) await alignment.align(undecided)
    else {
      const side = left ? 'source' : 'destination'
      const { documents, at } = undecided[side]
      alignment.decideRemaining(side, documents.slice(at))
      undecided[side].at = documents.length
    }
    const { missing, differing, lastCommon } = alignment.take()
    outcome.missing.push(...keysOf(missing))
    outcome.differing.push(...keys(differing))
    if (lastCommon) expectDecidedUpTo(lastCommon, streams, outcome)
  }
  outcome.equal = alignment.equal
  return { ...outcome, missing: outcome.missing.sort(), differing: outcome.differing.sort() }
}

/** Expects that every difference before the last common document is decided, because a restart begins at that document. */
function expectDecidedUpTo(lastCommon: Buffer, streams: Record<Side, Buffer[]>, { missing, differing }: Outcome): void {
  const key = identityKey(idElementOf(lastCommon))
  const before = (side: Side): Buffer[] => {
    const at = streams[side].findIndex((one) => identityKey(idElementOf(one)) === key)
    return streams[side].slice(0, at)
  }
  const [source, destination] = [before('source'), before('destination')]
  const decided = new Set([...missing, ...differing])
  const others = { source: new Set(keysOf(destination)), destination: new Set(keysOf(source)) }
  for (const one of keysOf(source)) if (!others.source.has(one)) expect(decided.has(one)).toBe(true)
  for (const one of keysOf(destination)) if (!others.destination.has(one)) expect(decided.has(one)).toBe(true)
}

function expected({ source, destination }: Sides): Omit<Outcome, 'asked'> {
  const missing = [...source].filter(([id]) => !destination.has(id))
  const changed = [...source].filter(([id, version]) => destination.has(id) && destination.get(id) !== version)
  const extra = [...destination].filter(([id]) => !source.has(id))
  const same = [...source].filter(([id, version]) => destination.get(id) === version)
  const key = ([id]: [number, number]): string => identityKey(idElementOf(documentOf(id, 0)))
  return { missing: missing.map(key).sort(), differing: [...changed, ...extra].map(key).sort(), equal: same.length }
}

const side = fc
  .array(fc.tuple(fc.nat({ max: 60 }), fc.nat({ max: 2 })), { maxLength: 50 })
  .map((pairs) => new Map(pairs))

describe('an alignment of two streams whose sort order is unknown', () => {
  it('finds exactly the missing, differing and extra documents in batches of any size', async () => {
    const sizes = fc.record({ source: fc.integer({ min: 1, max: 12 }), destination: fc.integer({ min: 1, max: 12 }) })
    await fc.assert(
      fc.asyncProperty(side, side, sizes, async (source, destination, size) => {
        const { asked: _, ...found } = await alignAll({ source, destination }, size)
        expect(found).toEqual(expected({ source, destination }))
      }),
      { numRuns: 500 },
    )
  })

  it.each<[string, (id: number) => boolean, (id: number) => boolean]>([
    ['only the destination has a long run', (place) => place < 400 || place > 600, () => true],
    ['only the source has a long run', () => true, (place) => place < 400 || place > 600],
    [
      'each side has a run that the other side lacks',
      (place) => place < 300 || place > 450,
      (place) => place < 600 || place > 700,
    ],
  ])(
    'requests only a few more _ids from the clusters than the run contains when %s',
    async (_what, onSource, onDestination) => {
      const all = Array.from({ length: 1_000 }, (_, id) => id)
      const of = (isThere: (place: number) => boolean): Map<number, number> =>
        new Map(all.filter((id) => isThere(anyOrder(id))).map((id) => [id, 0]))
      const sides = { source: of(onSource), destination: of(onDestination) }
      const { asked, ...found } = await alignAll(sides, { source: 20, destination: 20 })
      expect(found).toEqual(expected(sides))
      const differing = found.missing.length + found.differing.length
      expect(asked).toBeLessThan(2 * differing + 4 * 20)
    },
  )

  it('pairs an _id with an equal _id of another numeric type and reports the documents as different', async () => {
    const spelled = (id: Int32 | Long): Buffer => rawDocument([['_id', id]])
    const alignment = new Alignment(async () => new Set())
    await alignment.align({
      source: { documents: [spelled(new Int32(1)), spelled(new Int32(2))], at: 0 },
      destination: { documents: [spelled(Long.fromInt(1)), spelled(new Int32(2))], at: 0 },
    })
    const { missing, differing } = alignment.take()
    expect([missing.length, differing.length, alignment.equal]).toEqual([0, 1, 1])
  })

  it('continues if an _id is written on the other side after the reader has passed its position', async () => {
    const alignment = new Alignment(async () => new Set())
    const one = { documents: [documentOf(1, 0), documentOf(3, 0)], at: 0 }
    const other = { documents: [documentOf(2, 0), documentOf(3, 0)], at: 0 }
    await alignment.align({ source: one, destination: other })
    expect([alignment.decided.differing.length, alignment.equal]).toEqual([2, 1])
  })
})
