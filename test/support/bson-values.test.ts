import { BSON, Int32, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import {
  array,
  doubleBits,
  idOfEveryType,
  nastyDocument,
  nastyScalars,
  nested,
  rawDocument,
  undefinedValue,
} from './bson-values.ts'
import { elements, idBytes, show } from './compare-raw.ts'
import { Random } from './random.ts'

describe('rawDocument', () => {
  it('writes the same bytes as js-bson for a document whose order js-bson keeps', () => {
    const document = { a: 1, b: 'é', c: { d: [Long.fromInt(1), null], e: true } }
    const c = nested([
      ['d', array([Long.fromInt(1), null])],
      ['e', true],
    ])
    expect(
      rawDocument([
        ['a', new Int32(1)],
        ['b', 'é'],
        ['c', c],
      ]),
    ).toEqual(Buffer.from(BSON.serialize(document)))
  })

  it('keeps the order of numeric names, duplicate names and undefined values', () => {
    const bytes = rawDocument([
      ['10', 1],
      ['2', undefinedValue],
      ['10', doubleBits(1n << 63n)],
    ])
    expect([...elements(bytes)].map(({ name, value }) => [name, value[0]])).toEqual([
      ['10', 16],
      ['2', 6],
      ['10', 1],
    ])
  })
})

describe('nasty documents', () => {
  it('can be parsed completely and decoded', () => {
    const random = new Random(1)
    for (let i = 0; i < 500; i++) {
      const document = nastyDocument(random, i)
      expect([...elements(document)].length).toBeGreaterThan(1)
      expect(show(idBytes(document))).toBe(`{"$numberInt":"${i}"}`)
      BSON.deserialize(document, { promoteValues: false, bsonRegExp: true })
    }
  })

  it('depend only on the seed', () => {
    const [a, b] = [new Random('x'), new Random('x')]
    for (let i = 0; i < 50; i++) expect(nastyDocument(a, i)).toEqual(nastyDocument(b, i))
    expect(idOfEveryType.length).toBeGreaterThan(nastyScalars.length - 5)
  })
})

describe('Random', () => {
  it('repeats its values from a mark and differs between adjacent seeds', () => {
    const random = new Random(7)
    random.int(0, 9)
    const again = random.mark()
    const first = Array.from({ length: 20 }, () => random.int(0, 1000))
    again()
    expect(Array.from({ length: 20 }, () => random.int(0, 1000))).toEqual(first)
    expect(new Random(1).uint32()).not.toBe(new Random(2).uint32())
  })

  it('stays within its bounds and reaches both of them', () => {
    const random = new Random('bounds')
    const drawn = new Set(Array.from({ length: 500 }, () => random.int(-2, 2)))
    expect([...drawn].sort((a, b) => a - b)).toEqual([-2, -1, 0, 1, 2])
    const counts = { often: 0, never: 0 }
    for (let i = 0; i < 100; i++)
      counts[
        random.weighted([
          [1, 'often'],
          [0, 'never'],
        ] as const)
      ]++
    expect(counts).toEqual({ often: 100, never: 0 })
    expect(random.shuffle([1, 2, 3, 4]).sort()).toEqual([1, 2, 3, 4])
  })
})
