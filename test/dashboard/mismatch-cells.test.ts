import { expect, test } from 'vitest'
import type { MismatchesAnswer } from '../../src/api/mismatches-schema.ts'
import { cellsOf, noteOf } from '../../src/dashboard/mismatch-cells.js'

/** Tests the rows of the differences on the dashboard. */

type Mismatch = MismatchesAnswer['mismatches'][number]
const namespace = 'app.things'

test.each<[Mismatch, string[]]>([
  [
    { namespace, kind: 'content', id: { $numberInt: '7' }, field: 'lines.0.price', by: 'foreignWrite' },
    ['document differs', '_id {"$numberInt":"7"}, lines.0.price', 'a write on the destination'],
  ],
  [
    { namespace, kind: 'missing', id: 'x', by: 'sync' },
    ['document missing on the destination', '_id "x"', 'the sync lost a change'],
  ],
  [{ namespace, kind: 'extra', id: null }, ['document only on the destination', '_id null', 'not known']],
  [{ namespace, kind: 'index', field: 'at_1' }, ['index differs', 'at_1', 'not known']],
  [{ namespace, kind: 'collection' }, ['collection differs', '–', 'not known']],
])('the row of %j shows the difference in words', (mismatch, expected) => {
  expect(cellsOf(mismatch).map(({ text }) => text)).toEqual([namespace, ...expected])
})

test('a long _id is shortened, and the note above the rows says how many differences there are', () => {
  const cells = cellsOf({ namespace, kind: 'extra', id: 'x'.repeat(900) })
  expect(cells[2]?.text.length).toBeLessThan(250)
  expect(noteOf(0, 0)).toBe('No difference is stored.')
  expect(noteOf(1, 1)).toMatch(/^1 difference, /)
  expect(noteOf(100, 1_234_567)).toMatch(/^The first 100 of 1,234,567 differences are shown;/)
})
