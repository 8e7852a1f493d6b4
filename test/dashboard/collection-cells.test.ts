import { expect, test } from 'vitest'
import type { CollectionsAnswer } from '../../src/api/collections-schema.ts'
import { cellsOf, isBehind, passesOf } from '../../src/dashboard/collection-cells.js'
import type { Progress } from '../../src/domain/progress.ts'
import { idleProgress } from '../../src/session/report-progress.ts'

/** A row of the collection table on the dashboard may be older than the figures of the whole sync. */

type Row = CollectionsAnswer['collections'][number]

const row: Row = {
  namespace: 'app.things',
  copy: {
    ended: true,
    converging: false,
    estimatedTotalBytes: 263_000,
    estimatedCopiedBytes: 263_000,
    estimatedDocumentCount: 500,
    copiedDocumentCount: 500,
  },
  indexes: { total: 0, built: 0, heldBack: 0, missing: 0 },
  verification: { phase: 'not started', hashedDocumentCount: 0, hashedRanges: 0, totalRanges: 1 },
  mismatches: 0,
}
const halfCopied: Row = {
  ...row,
  copy: { ...row.copy, ended: false, estimatedCopiedBytes: 131_500, copiedDocumentCount: 250 },
}
const side = {
  estimatedDocumentCount: 500,
  hashedDocumentCount: 500,
  lagTimeSeconds: 0,
  scannedCollectionCount: 1,
  totalCollectionCount: 1,
}
const running: Progress = { ...idleProgress, state: 'RUNNING', info: 'change event application' }
const inPhase = (phase: string): Progress => {
  const both = { ...side, phase }
  return { ...running, verification: { source: both, destination: both } }
}
const textsOf = (one: Row, progress: Progress | null): string[] =>
  cellsOf(one, passesOf(progress)).map(({ text }) => text)

test('a collection is shown as compared once the first verification has ended, even if its row is older', () => {
  expect(textsOf(row, inPhase('not started'))[4]).toBe('not started')
  expect(textsOf(row, inPhase('initial hashing'))[4]).toBe('0 compared, 0 % of the ranges')
  expect(textsOf(row, inPhase('stream hashing'))[4]).toBe('compared, changes followed')
  const compared = { phase: 'stream hashing', hashedDocumentCount: 500, hashedRanges: 1, totalRanges: 1 } as const
  expect(textsOf({ ...row, verification: compared }, inPhase('stream hashing'))[4]).toBe(
    '500 compared, changes followed',
  )
  expect(textsOf({ ...row, verification: null }, running)[4]).toBe('off')
})

test('a collection is shown as copied once the copy has ended, even if its row is older', () => {
  const copying: Progress = { ...running, info: 'collection copy' }
  expect(textsOf(halfCopied, copying).slice(1, 3)).toEqual(['132 kB of 263 kB', '250 of 500'])
  expect(cellsOf(halfCopied, passesOf(copying))[1]?.share).toBe(0.5)
  const converging = { ...halfCopied, copy: { ...halfCopied.copy, converging: true } }
  expect(textsOf(converging, copying)[1]).toBe('converging, 132 kB of 263 kB')
  expect(textsOf(halfCopied, running).slice(1, 3)).toEqual(['263 kB, all', '500'])
  expect(cellsOf(halfCopied, passesOf(running))[1]?.share).toBe(1)
})

test('the page requests rows again soon only while they are older than the figures of the whole sync', () => {
  const compared: Row = { ...row, verification: null }
  expect(isBehind([compared, row], passesOf(inPhase('stream hashing')))).toBe(true)
  expect(isBehind([compared, halfCopied], passesOf(running))).toBe(true)
  expect(isBehind([compared, row], passesOf(inPhase('initial hashing')))).toBe(false)
  expect(isBehind([compared, halfCopied, row], passesOf(null))).toBe(false)
})
