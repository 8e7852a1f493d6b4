import fc from 'fast-check'
import { BSON, Long } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { alignDocuments } from '../../src/comparison/align-documents.ts'
import { DocumentStream } from '../../src/comparison/document-stream.ts'

type Content = number

/** The documents of one side: a map from `_id` to content, in the order of `_id`. */
type Side = Map<number, Content>

interface Found {
  missing: number[]
  extra: number[]
  different: number[]
}

const documentOf = (_id: number, content: Content): Buffer => Buffer.from(BSON.serialize({ _id, content }))
const idOf = (document: Buffer): number => BSON.deserialize(document)['_id']

function streamOf(side: Side, batch: number): DocumentStream {
  const documents = [...side].sort(([one], [other]) => one - other).map(([id, content]) => documentOf(id, content))
  return new DocumentStream(async () => (documents.length === 0 ? null : documents.splice(0, batch)))
}

async function align(left: Side, right: Side, { windowDocuments = 1_000, batch = 3, collated = false } = {}) {
  const found: Found = { missing: [], extra: [], different: [] }
  let queries = 0
  await alignDocuments(streamOf(left, batch), streamOf(right, batch), {
    collated,
    windowDocuments,
    find: async (ids) => {
      queries += 1
      return ids.map(Number).flatMap((id) => (left.has(id) ? [documentOf(id, left.get(id) as Content)] : []))
    },
    found: {
      missing: (document) => found.missing.push(idOf(document)),
      extra: (document) => found.extra.push(idOf(document)),
      different: (ours) => found.different.push(idOf(ours)),
    },
  })
  return { found, queries }
}

function expected(left: Side, right: Side): Found {
  const inOrder = (side: Side) => [...side.keys()].sort((one, other) => one - other)
  return {
    missing: inOrder(left).filter((id) => !right.has(id)),
    extra: inOrder(right).filter((id) => !left.has(id)),
    different: inOrder(left).filter((id) => right.has(id) && right.get(id) !== left.get(id)),
  }
}

const side = fc.array(fc.tuple(fc.nat(60), fc.nat(2))).map((entries) => new Map(entries))

const range = (from: number, to: number): Side => new Map(Array.from({ length: to - from }, (_, i) => [from + i, 0]))

describe('two streams of documents', () => {
  test.each([
    ['within the window', { windowDocuments: 1_000 }],
    ['with a window of one document', { windowDocuments: 1 }],
    ['with a window of three documents', { windowDocuments: 3 }],
    ['under a collation', { collated: true }],
    ['under a collation, with a window of two documents', { collated: true, windowDocuments: 2 }],
  ])('are paired for any missing documents on either side, %s', async (_, options) => {
    await fc.assert(
      fc.asyncProperty(side, side, fc.integer({ min: 1, max: 8 }), async (left, right, batch) => {
        expect((await align(left, right, { ...options, batch })).found).toEqual(expected(left, right))
      }),
      { numRuns: 500, seed: 11 },
    )
  })

  test('a gap far longer than the window is counted exactly, with at most one query per window', async () => {
    const whole = range(0, 30_000)
    const gap = new Map([...range(0, 100), ...range(25_000, 30_000)])
    const options = { windowDocuments: 100, batch: 50 }
    const missing = await align(whole, gap, options)
    expect(missing.found.missing).toHaveLength(24_900)
    expect([missing.found.extra, missing.found.different]).toEqual([[], []])
    expect(missing.queries).toBe(1)
    const extra = await align(gap, whole, options)
    expect(extra.found.extra).toHaveLength(24_900)
    expect([extra.found.missing, extra.found.different]).toEqual([[], []])
    expect(extra.queries).toBeLessThanOrEqual(250)
  })

  test('one empty side and two empty sides need no query', async () => {
    expect(await align(range(0, 500), new Map(), { windowDocuments: 10 })).toMatchObject({ queries: 0 })
    expect(await align(new Map(), new Map())).toEqual({
      found: { missing: [], extra: [], different: [] },
      queries: 0,
    })
  })

  test('equal streams need no query', async () => {
    expect((await align(range(0, 5_000), range(0, 5_000), { windowDocuments: 1 })).queries).toBe(0)
  })

  test('all documents with one _id on two shards are compared together, in any order', async () => {
    const found: string[] = []
    const stream = (contents: number[]) => {
      let documents: Buffer[] | null = [documentOf(1, 0), ...contents.map((content) => documentOf(2, content))]
      return new DocumentStream(async () => {
        const batch = documents
        documents = null
        return batch
      })
    }
    const options = {
      collated: false,
      find: async () => [],
      found: {
        missing: () => found.push('missing'),
        extra: () => found.push('extra'),
        different: () => found.push('different'),
      },
    }
    await alignDocuments(stream([1, 2, 3]), stream([3, 1, 2]), options)
    expect(found).toEqual([])
    await alignDocuments(stream([1, 2, 3]), stream([3, 4]), options)
    expect(found).toEqual(['different', 'missing'])
  })

  test('_ids with the same number in two types identify one document', async () => {
    const found: string[] = []
    const stream = (id: unknown) => {
      let documents: Buffer[] | null = [Buffer.from(BSON.serialize({ _id: id }))]
      return new DocumentStream(async () => {
        const batch = documents
        documents = null
        return batch
      })
    }
    await alignDocuments(stream(1), stream(Long.fromInt(1)), {
      collated: false,
      find: async () => [],
      found: {
        missing: () => found.push('missing'),
        extra: () => found.push('extra'),
        different: () => found.push('different'),
      },
    })
    expect(found).toEqual(['different'])
  })

  test('a read that fails ends the comparison with its error', async () => {
    const failing = new DocumentStream(async () => {
      throw new Error('gone')
    })
    const options = {
      collated: false,
      find: async () => [],
      found: { missing: () => {}, extra: () => {}, different: () => {} },
    }
    await expect(alignDocuments(streamOf(range(0, 9), 2), failing, options)).rejects.toThrow('gone')
  })
})
