import fc from 'fast-check'
import { BSON } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { hashedBytesMax, sizeOfHashed } from '../../src/mongo/document-hash.ts'
import type { RawCursor } from '../../src/mongo/raw-cursor.ts'
import { compareRange } from '../../src/verify/compare-range.ts'
import { DocumentPairing } from '../../src/verify/pair-documents.ts'
import { readForms } from '../../src/verify/read-form.ts'

const document = (_id: number, value: string): Buffer => Buffer.from(BSON.serialize({ _id, value }))

/** Creates a cursor over these documents, in batches of these sizes. */
function cursorOver(documents: Buffer[], sizes: number[]): RawCursor {
  const rest = [...documents]
  let batch = 0
  const next = async () => {
    if (rest.length === 0) return null
    return { documents: rest.splice(0, sizes[batch++ % sizes.length] ?? 1) }
  }
  return { next } as unknown as RawCursor
}

const idIn = (idElement: Buffer): number => idElement.readInt32LE(5)

/** The documents of one range. Each is equal on both sides, on one side only, or different in content. */
const range = fc
  .uniqueArray(
    fc.record({
      _id: fc.integer({ min: 0, max: 500 }),
      is: fc.oneof(
        { weight: 6, arbitrary: fc.constant('equal' as const) },
        { weight: 1, arbitrary: fc.constantFrom('missing' as const, 'extra' as const, 'content' as const) },
      ),
    }),
    { selector: ({ _id }) => _id, maxLength: 200 },
  )
  .map((rows) => rows.sort((one, other) => one._id - other._id))
const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 })

describe('two documents with one _id on two shards', () => {
  it('are suspects even if the other side has a document equal to the second', () => {
    const suspects: number[] = []
    const pairing = new DocumentPairing((idElement) => suspects.push(idIn(idElement)))
    pairing.single('destination', document(7, 'stale'))
    pairing.single('destination', document(7, 'same'))
    pairing.single('source', document(7, 'same'))
    pairing.end()
    expect(suspects).toEqual([7])
  })
})

describe('comparing a range', () => {
  it('reports exactly the documents that differ between the sides, for any batch sizes', async () => {
    await fc.assert(
      fc.asyncProperty(range, sizes, sizes, async (rows, left, right) => {
        const source = rows.filter(({ is }) => is !== 'extra').map(({ _id }) => document(_id, 'a'))
        const destination = rows
          .filter(({ is }) => is !== 'missing')
          .map(({ _id, is }) => document(_id, is === 'content' ? 'b' : 'a'))
        const suspects: number[] = []
        const compared = await compareRange(
          cursorOver(source, left),
          cursorOver(destination, right),
          (idElement) => suspects.push(idIn(idElement)),
          async () => {},
        )
        const expected = rows.filter(({ is }) => is !== 'equal').map(({ _id }) => _id)
        expect(suspects.sort((one, other) => one - other)).toEqual(expected)
        expect(compared.documents).toEqual({ source: source.length, destination: destination.length })
        expect(compared.bytes).toBe(source.reduce((sum, { length }) => sum + length, 0))
      }),
    )
  })

  it('reports exactly the documents whose hash or size differs, and those that are too large for a hash', async () => {
    const hashed = (_id: number, h: number, s: number): Buffer =>
      Buffer.from(BSON.serialize({ _id, h: BSON.Long.fromNumber(h), s: new BSON.Int32(s) }))
    await fc.assert(
      fc.asyncProperty(range, sizes, sizes, fc.func(fc.nat(3)), async (rows, left, right, kindOf) => {
        // A document of kind 0 is too large, and one of kind 1 that differs has another size and the same hash.
        const of = (_id: number, isOther: boolean): Buffer => {
          const kind = kindOf(_id)
          if (kind === 0) return Buffer.from(BSON.serialize({ _id, h: null, s: new BSON.Int32(hashedBytesMax) }))
          return hashed(_id, kind > 1 && isOther ? 8 : 7, kind === 1 && isOther ? 101 : 100)
        }
        const source = rows.filter(({ is }) => is !== 'extra').map(({ _id }) => of(_id, false))
        const destination = rows.filter(({ is }) => is !== 'missing').map(({ _id, is }) => of(_id, is === 'content'))
        const suspects = new Set<number>()
        let charged = 0
        const compared = await compareRange(
          cursorOver(source, left),
          cursorOver(destination, right),
          (idElement) => suspects.add(idIn(idElement)),
          async (bytes) => {
            charged += bytes
          },
          () => 1_000,
          readForms.toHashedIndexKey,
        )
        const expected = rows.filter(({ _id, is }) => is !== 'equal' || kindOf(_id) === 0).map(({ _id }) => _id)
        expect([...suspects].sort((one, other) => one - other)).toEqual(expected)
        expect(compared.documents).toEqual({ source: source.length, destination: destination.length })
        expect(compared.bytes).toBe(source.reduce((sum, one) => sum + sizeOfHashed(one), 0))
        const tooLarge = source.filter((one) => sizeOfHashed(one) === hashedBytesMax).length
        expect(charged).toBe(source.reduce((sum, { length }) => sum + length, 0) + tooLarge * hashedBytesMax)
      }),
    )
  })

  it('requests few hashes at a time, however small the previous documents are, because large ones may follow', () => {
    const reply = Buffer.from(BSON.serialize({ _id: 1, h: BSON.Long.fromNumber(7), s: new BSON.Int32(30) }))
    const read = Array.from({ length: 500 }, () => reply)
    expect(readForms.toHashedIndexKey.nextBatch(read, 8 * 1024 * 1024, 500)).toBe(1_000)
  })

  it('does not depend on order, so shuffled documents are equal', async () => {
    const ids = fc.uniqueArray(fc.integer({ min: 0, max: 10_000 }), { maxLength: 300 })
    await fc.assert(
      fc.asyncProperty(ids, fc.infiniteStream(fc.double({ min: 0, max: 1, noNaN: true })), async (all, chance) => {
        const documents = all.map((_id) => document(_id, 'a'))
        const shuffled = documents
          .map((one) => ({ one, at: chance.next().value as number }))
          .sort((a, b) => a.at - b.at)
          .map(({ one }) => one)
        const suspects: Buffer[] = []
        const suspect = (idElement: Buffer) => suspects.push(idElement)
        await compareRange(cursorOver(documents, [7]), cursorOver(shuffled, [11]), suspect, async () => {})
        expect(suspects).toEqual([])
      }),
    )
  })

  it('waits for capacity after every batch', async () => {
    const documents = Array.from({ length: 100 }, (_, _id) => document(_id, 'a'))
    let waits = 0
    await compareRange(
      cursorOver(documents, [10]),
      cursorOver(documents, [10]),
      () => {},
      async () => void waits++,
    )
    expect(waits).toBeGreaterThanOrEqual(10)
  })
})

describe('pairing', () => {
  it('reports all unpaired documents once when there are too many of them', () => {
    const suspects: number[] = []
    const pairing = new DocumentPairing((idElement) => suspects.push(idIn(idElement)))
    for (let _id = 0; _id < 5_000; _id++) pairing.single('source', document(_id, 'a'))
    expect(suspects.length).toBeGreaterThanOrEqual(4_000)
    pairing.end()
    expect(suspects.sort((one, other) => one - other)).toEqual(Array.from({ length: 5_000 }, (_, _id) => _id))
  })

  it('reports two spellings of one _id as one differing document', () => {
    const suspects: Buffer[] = []
    const pairing = new DocumentPairing((idElement) => suspects.push(idElement))
    pairing.single('source', Buffer.from(BSON.serialize({ _id: 1 })))
    pairing.single('destination', Buffer.from(BSON.serialize({ _id: new BSON.Long(1) })))
    pairing.end()
    expect(suspects).toHaveLength(1)
  })
})
