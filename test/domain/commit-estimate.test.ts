import fc from 'fast-check'
import { expect, it } from 'vitest'
import { type CommitFigures, estimateCommit } from '../../src/domain/commit-estimate.ts'

const nothing: CommitFigures = {
  ...{ lagSeconds: 0, appliedPerSecond: null, verification: null, collections: 1 },
  ...{ uniqueIndexes: 0, indexEntries: 0, cappedDocuments: 0, roundTripMS: 0.5 },
}

it('the estimate of a commit without waits is the fixed time, and lists no wait', () => {
  expect(estimateCommit(nothing)).toEqual({ estimatedSeconds: 0.6, waitingFor: [] })
})

it('the estimate lists each wait with its seconds', () => {
  const figures = { ...nothing, lagSeconds: 21, appliedPerSecond: 5, indexEntries: 600_000 }
  const verification = { open: 30_000, perSecond: 15_000 }
  expect(estimateCommit({ ...figures, verification })).toEqual({
    estimatedSeconds: 9.6,
    waitingFor: [
      { what: 'changes to be applied', estimatedSeconds: 4 },
      { what: 'documents to be compared', estimatedSeconds: 2 },
      { what: 'indexes to be built', estimatedSeconds: 3 },
    ],
  })
})

it('property: the estimate is a finite number, and more work never lowers it', () => {
  const amount = fc.nat({ max: 1_000_000 })
  const figures = fc.record({
    lagSeconds: fc.option(amount),
    appliedPerSecond: fc.option(fc.double({ min: 0, max: 100, noNaN: true })),
    verification: fc.option(fc.record({ open: amount, perSecond: amount })),
    ...{
      collections: amount,
      uniqueIndexes: amount,
      indexEntries: amount,
      cappedDocuments: amount,
      roundTripMS: amount,
    },
  })
  fc.assert(
    fc.property(
      figures,
      fc.constantFrom('collections', 'uniqueIndexes', 'indexEntries', 'cappedDocuments'),
      (some, what) => {
        const { estimatedSeconds } = estimateCommit(some)
        expect(Number.isFinite(estimatedSeconds)).toBe(true)
        const more = estimateCommit({ ...some, [what]: some[what] + 1_000 })
        expect(more.estimatedSeconds).toBeGreaterThanOrEqual(estimatedSeconds)
      },
    ),
  )
})
