import fc from 'fast-check'
import { expect, it } from 'vitest'
import { nextBatchSize } from '../../src/domain/batch-size.ts'

const some = fc.integer({ min: 1, max: 1_000_000 })
const batch = fc.record({ documents: some, bytes: some })

it('a batch of documents of the average size so far is within both limits, unless a single document exceeds them', () => {
  fc.assert(
    fc.property(batch, batch, some, (read, max, previous) => {
      const size = nextBatchSize(read, max, previous)
      expect(size).toBeGreaterThanOrEqual(1)
      expect(size).toBeLessThanOrEqual(max.documents)
      const bytes = (size * read.bytes) / read.documents
      if (size > 1) expect(bytes).toBeLessThanOrEqual(max.bytes * (1 + Number.EPSILON))
      // One more document would exceed a limit.
      const isFull = size === max.documents || ((size + 1) * read.bytes) / read.documents > max.bytes
      expect(isFull).toBe(true)
    }),
  )
})

it('the batch size does not change when nothing was read', () => {
  expect(nextBatchSize({ documents: 0, bytes: 0 }, { documents: 9, bytes: 9 }, 7)).toBe(7)
})
