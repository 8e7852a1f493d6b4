import fc from 'fast-check'
import { Double, Int32, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { firstDifferingPath } from '../../src/verify/field-path.ts'
import { anyFields, documentOf } from '../domain/bson-arbitraries.ts'
import { array, nested, type RawField, rawDocument } from '../support/bson-values.ts'

const base: RawField[] = [
  ['_id', new Int32(1)],
  ['a', 'x'],
  ['b', nested([['c', array([new Int32(1), nested([['d', 'y']])])]])],
  ['e', null],
]
const document = rawDocument(base)
const withField = (name: string, value: unknown): Buffer =>
  rawDocument(base.map((field) => (field[0] === name ? ([name, value] as const) : field)))
const listOf = (...items: unknown[]) => nested([['c', array(items)]])

describe('the path of the first difference', () => {
  it.each([
    ['another value', withField('a', 'z'), 'a'],
    ['an equal number of another type', withField('_id', new Long(1)), '_id'],
    ['a value of another type', withField('a', new Double(0)), 'a'],
    ['a value within an array', withField('b', listOf(new Int32(2), nested([['d', 'y']]))), 'b.c.0'],
    ['a field of a document in an array', withField('b', listOf(new Int32(1), nested([['d', 'z']]))), 'b.c.1.d'],
    ['a longer array', withField('b', listOf(new Int32(1), nested([['d', 'y']]), 3)), 'b.c.2'],
    ['a shorter array', withField('b', listOf(new Int32(1))), 'b.c.1'],
    ['an array instead of a document', withField('b', array([])), 'b'],
    ['an additional field', rawDocument([...base, ['f', 1]]), 'f'],
    ['a missing field', rawDocument(base.slice(0, 3)), 'e'],
    ['another order', rawDocument([base[0], base[2], base[1], base[3]] as RawField[]), 'a'],
    ['another name', rawDocument(base.map(([name, value]) => [name === 'a' ? 'z' : name, value])), 'a'],
    ['equal documents', document, null],
  ])('%s', (_, other, path) => {
    expect(firstDifferingPath(document, other)).toBe(path)
  })

  it('exists if and only if the bytes differ, for documents of any kind', () => {
    fc.assert(
      fc.property(anyFields, anyFields, (one, other) => {
        const [left, right] = [documentOf(one), documentOf(other)]
        expect(firstDifferingPath(left, right) === null).toBe(left.equals(right))
        expect(firstDifferingPath(left, Buffer.from(left))).toBeNull()
      }),
    )
  })

  it('names an appended field, and not its value', () => {
    fc.assert(
      fc.property(anyFields, (fields) => {
        const more = [...fields, { name: 'appended', value: Buffer.from([0x0a]) }]
        expect(firstDifferingPath(documentOf(fields), documentOf(more))).toBe('appended')
      }),
    )
  })
})
