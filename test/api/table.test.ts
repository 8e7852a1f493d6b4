import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { renderTable, truncate, widthOf } from '../../src/cli/table.ts'

const name = { title: 'name', align: 'left', cellsMin: 4 } as const
const value = { title: 'value', align: 'right' } as const

describe('renderTable', () => {
  test('aligns columns, and numbers to the right', () => {
    expect(
      renderTable(
        [name, value],
        [
          ['one', '1'],
          ['three', '1,000'],
        ],
        80,
      ),
    ).toEqual(['name   value', 'one        1', 'three  1,000'])
  })

  test('shortens only columns that may be shortened, and the widest one first', () => {
    const other = { title: 'other', align: 'left', cellsMin: 4 } as const
    const rows = [['abcdefghijklmnop', '123456', 'abcdef']]
    expect(renderTable([name, value, other], rows, 24)).toEqual(['name       value  other', 'abcdefg…  123456  abcdef'])
    // Each column keeps its minimum width, even if the table is then wider than requested.
    expect(renderTable([name, value, other], rows, 3)[1]).toBe('abc…  123456  abc…')
  })

  test('measures widths in cells of the terminal, not in characters', () => {
    expect(['e\u0301', '分片', '🚀', 'ｱ', '\u200b', 'né'].map(widthOf)).toEqual([1, 4, 2, 1, 0, 2])
    expect(
      renderTable(
        [name, value],
        [
          ['分片', '1'],
          ['ascii', '2'],
        ],
        80,
      ).slice(1),
    ).toEqual(['分片       1', 'ascii      2'])
    expect(truncate('分片分片', 4)).toBe('分…')
  })

  test('property: no line is wider than the requested width, unless the fixed columns and the minimum widths require it', () => {
    const cell = fc.string({ unit: 'grapheme', maxLength: 40 })
    fc.assert(
      fc.property(fc.array(fc.tuple(cell, fc.nat().map(String))), fc.integer({ min: 0, max: 120 }), (rows, width) => {
        const fixed = Math.max('value'.length, ...rows.map(([, number]) => number.length))
        for (const line of renderTable([name, value], rows, width)) {
          expect(widthOf(line)).toBeLessThanOrEqual(Math.max(width, 4 + 2 + fixed))
        }
      }),
    )
  })
})
