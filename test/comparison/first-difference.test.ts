import fc from 'fast-check'
import { Double, Int32, Long } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { firstDifference } from '../../src/comparison/first-difference.ts'
import { anyFields, documentOf } from '../domain/bson-arbitraries.ts'
import { array, nested, type RawField, rawDocument } from '../support/bson-values.ts'

const a: RawField = ['a', 1]
const b: RawField = ['b', 2]

describe('the first field that differs', () => {
  test.each<[string, RawField[], RawField[], string]>([
    ['a value', [a, b], [a, ['b', 3]], 'b'],
    ['a numeric type', [['n', new Int32(1)]], [['n', Long.fromInt(1)]], 'n'],
    ['another numeric type', [['n', new Double(1)]], [['n', Long.fromInt(1)]], 'n'],
    ['the sign of zero', [['n', new Double(0)]], [['n', new Double(-0)]], 'n'],
    ['the order', [a, b], [b, a], 'a'],
    ['a field that is missing', [a, ['x', 0], b], [a, b], 'x'],
    ['a field that is extra', [a, b], [a, ['x', 0], b], 'x'],
    ['an additional field at the end', [a], [a, b], 'b'],
    ['a missing field at the end', [a, b], [a], 'b'],
    ['a duplicate name', [a, b], [a, a, b], 'a'],
    ['an embedded field', [['x', nested([a, ['y', nested([b])]])]], [['x', nested([a, ['y', nested([a])]])]], 'x.y.b'],
    ['an element of an array', [['x', array([1, nested([a])])]], [['x', array([1, nested([b])])]], 'x.1.a'],
    ['the length of an array', [['x', array([1, 2])]], [['x', array([1])]], 'x.1'],
    ['a document instead of an array', [['x', nested([['0', 1]])]], [['x', array([1])]], 'x'],
  ])('%s', (_, ours, theirs, path) => {
    expect(firstDifference(rawDocument(ours), rawDocument(theirs))).toBe(path)
  })

  test('the path is empty if a document is not valid BSON', () => {
    const broken = rawDocument([a])
    broken[4] = 0x55
    expect(firstDifference(rawDocument([a]), broken)).toBe('')
  })

  test('is found if and only if the bytes differ', () => {
    fc.assert(
      fc.property(anyFields, anyFields, (one, other) => {
        const [ours, theirs] = [documentOf(one), documentOf(other)]
        expect(firstDifference(ours, ours)).toBe('')
        // A field without a name also has an empty path.
        if (!ours.equals(theirs) && ![...one, ...other].some(({ name }) => name === '')) {
          expect(firstDifference(ours, theirs)).not.toBe('')
        }
      }),
      { numRuns: 1_000, seed: 3 },
    )
  })
})
