import { Binary } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { documentParts } from '../../src/documents/write-in-parts.ts'
import { idElementOf } from '../../src/domain/id-element.ts'
import { array, nested, type RawField, rawDocument } from '../support/bson-values.ts'

const megabytes = (count: number) => new Binary(Buffer.alloc(count * 1024 * 1024))
const large = megabytes(15)

function partsOf(id: unknown, ...fields: RawField[]) {
  const document = rawDocument([['_id', id], ...fields])
  return documentParts(idElementOf(document), document)
}

describe('the parts of a document that is too large for one statement', () => {
  it('are an insert of the fields that fit, with a marker field, and updates that add the other fields; the last update removes the marker', () => {
    const parts = partsOf(megabytes(1), ['a', megabytes(10)], ['b', megabytes(5)], ['c', 1])
    expect(parts?.updates).toHaveLength(2)
    for (const part of [parts?.insert, ...(parts?.updates ?? [])]) expect(part?.length).toBeLessThan(16 * 1024 * 1024)
  })

  it.each<[string, RawField[]]>([
    ['a dot in its name', [['a.b', large]]],
    ['a name that begins with a dollar sign', [['$a', large]]],
    ['an empty name', [['', large]]],
    [
      'a name that occurs twice',
      [
        ['a', large],
        ['a', 1],
      ],
    ],
    [
      'the name of a field that the insert contains',
      [
        ['a', 1],
        ['b', large],
        ['a', 2],
      ],
    ],
    [
      'a nested document in which an earlier field has the same name',
      [
        [
          'a',
          nested([
            ['b', 1],
            ['c', large],
            ['d', large],
            ['b', 2],
          ]),
        ],
      ],
    ],
    [
      'a nested document that contains a field name with a dot',
      [
        [
          'a',
          nested([
            ['d', large],
            ['b.c', large],
          ]),
        ],
      ],
    ],
  ])('do not exist when a field that an update must add has %s', (_what, fields) => {
    expect(partsOf(megabytes(1), ...fields)).toBeNull()
  })

  it('do not exist when a field of the shard key is not among the fields that fit into the insert', () => {
    const document = rawDocument([
      ['_id', megabytes(1)],
      ['a', large],
      ['k', 1],
    ])
    expect(documentParts(idElementOf(document), document, new Set(['k']))).toBeNull()
    expect(documentParts(idElementOf(document), document)).not.toBeNull()
  })

  it('do not exist when one value is too large for an update, or the _id is too large to be repeated in the oplog entry', () => {
    expect(partsOf(megabytes(1), ['a', megabytes(16)])).toBeNull()
    expect(partsOf(megabytes(1), ['a', array([megabytes(16)])])).toBeNull()
    expect(partsOf(megabytes(9), ['a', 1])).toBeNull()
  })
})
