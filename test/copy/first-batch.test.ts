import fc from 'fast-check'
import { expect, it } from 'vitest'
import { firstBatchOf } from '../../src/copy/copy-segment.ts'

/** The number of documents that the copy of a segment reads first. */

const sizes = fc.record({
  estimatedDocuments: fc.integer({ min: 0, max: 1e9 }),
  estimatedBytes: fc.integer({ min: 0 }),
})
const limits = fc.record({ documents: fc.constant(10_000), bytes: fc.integer({ min: 1_024, max: 4 * 1024 * 1024 }) })

it('documents of average size take at most half of the bytes, and there is always one', () => {
  fc.assert(
    fc.property(sizes, limits, (size, max) => {
      const first = firstBatchOf(size, max)
      expect(first).toBeGreaterThanOrEqual(1)
      expect(first).toBeLessThanOrEqual(max.documents)
      if (size.estimatedDocuments === 0 || size.estimatedBytes === 0) return
      const average = size.estimatedBytes / size.estimatedDocuments
      if (first > 1) expect(first * average).toBeLessThanOrEqual(max.bytes / 2)
    }),
  )
})

it('an unmeasured collection begins with 200 documents, or fewer if the bytes are limited', () => {
  const unmeasured = { estimatedDocuments: 0, estimatedBytes: 0 }
  expect(firstBatchOf(unmeasured, { documents: 10_000, bytes: 4 * 1024 * 1024 })).toBe(200)
  expect(firstBatchOf(unmeasured, { documents: 10_000, bytes: 1024 * 1024 })).toBe(50)
})
