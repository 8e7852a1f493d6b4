import fc from 'fast-check'
import { Double, Int32, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import {
  canBecome,
  changesByCollMod,
  collModOptions,
  deferredOptionsOf,
  differOnlyInDeferredOptions,
  indexName,
  indexWhileDeferred,
  isCapped,
  isCollated,
  optionsWhileDeferred,
  sameNumber,
} from '../../src/domain/definition.ts'
import { fieldNamed, type RawFields, readFields } from '../../src/domain/raw-bson.ts'
import { nested, type RawField, rawDocument } from '../support/bson-values.ts'
import { anyName, anyValue } from './bson-arbitraries.ts'

const fieldsOf = (...fields: RawField[]): RawFields => readFields(rawDocument(fields))
const typedOf = (value: unknown) => fieldsOf(['v', value])[0]?.value
const names = (fields: RawFields) => fields.map(({ name }) => name)

const collation = nested([
  ['locale', 'en'],
  ['strength', new Int32(2)],
])
const simple = nested([['locale', 'simple']])

describe('the options of a collection on the destination before the commit', () => {
  it('are the same bytes as on the source for a plain collection', () => {
    const options = fieldsOf(
      ['validator', nested([['$jsonSchema', nested([['required', ['a']]])]])],
      ['validationLevel', 'moderate'],
      ['collation', collation],
      ['storageEngine', nested([['wiredTiger', nested([])]])],
      ['changeStreamPreAndPostImages', nested([['enabled', true]])],
    )
    expect(optionsWhileDeferred(options)).toEqual(options)
  })

  it('omit the fields that listCollections returns and create does not accept', () => {
    const history = fieldsOf(['uuid', 'x'], ['temp', true], ['autoIndexId', false])
    const options = [...history, ...fieldsOf(['recordIdsReplicated', true], ['collation', collation])]
    expect(names(optionsWhileDeferred(options))).toEqual(['collation'])
  })

  it('have the largest possible size for a capped collection, so that the collection removes no document early', () => {
    const options = fieldsOf(['capped', true], ['size', new Int32(4096)], ['max', new Int32(10)])
    expect(optionsWhileDeferred(options)).toEqual(
      fieldsOf(['capped', true], ['size', Long.fromString('1125899906842624')]),
    )
  })

  it('keep size and max of a collection that is not capped', () => {
    const options = fieldsOf(['capped', false], ['size', new Int32(4096)], ['max', new Int32(10)])
    expect(optionsWhileDeferred(options)).toEqual(options)
  })

  it('have no expiry for a clustered collection', () => {
    const clustered = nested([
      ['key', nested([['_id', 1]])],
      ['unique', true],
    ])
    const options = fieldsOf(['clusteredIndex', clustered], ['expireAfterSeconds', Long.fromInt(60)])
    expect(names(optionsWhileDeferred(options))).toEqual(['clusteredIndex'])
  })
})

it('replicated record ids, which 8.1 and later list as an option, make no difference between two collections', () => {
  const replicated = fieldsOf(['recordIdsReplicated', true])
  expect(changesByCollMod(replicated, [])).toBe(true)
  expect(changesByCollMod([], replicated)).toBe(true)
  expect(collModOptions(replicated, [])).toEqual([])
})

describe('an index on the destination before the commit', () => {
  const plain = fieldsOf(
    ['v', new Int32(2)],
    [
      'key',
      nested([
        ['b', 1],
        ['10', new Double(-1)],
        ['a', '2dsphere'],
      ]),
    ],
    ['name', 'the name'],
    ['partialFilterExpression', nested([['a', nested([['$exists', true]])]])],
    ['sparse', true],
  )

  it('has the same specification as on the source if no option is deferred', () => {
    expect(indexWhileDeferred(plain, [])).toEqual(plain)
  })

  it('is built without its deferred options, and expires no documents', () => {
    const traits = fieldsOf(
      ['unique', true],
      ['prepareUnique', true],
      ['hidden', true],
      ['expireAfterSeconds', new Int32(60)],
      ['background', true],
      ['ns', 'app.things'],
    )
    expect(indexWhileDeferred([...plain, ...traits], [])).toEqual([
      ...plain,
      ...fieldsOf(['expireAfterSeconds', new Int32(2_147_483_647)]),
    ])
  })

  it('names the simple collation where it would inherit the collection’s collation', () => {
    const collated = fieldsOf(['collation', collation])
    const relaxed = indexWhileDeferred(plain, collated)
    expect(fieldNamed(relaxed, 'collation')).toEqual(typedOf(simple))
    expect(relaxed.filter(({ name }) => name !== 'collation')).toEqual(plain)
    const own = [...plain, ...fieldsOf(['collation', collation])]
    expect(indexWhileDeferred(own, collated)).toEqual(own)
    expect(indexWhileDeferred(plain, fieldsOf(['collation', simple]))).toEqual(plain)
  })

  it('property: can always become the index of the source by collMod alone', () => {
    const specification = fc
      .tuple(
        fc.array(fc.record({ name: anyName, value: anyValue }), { maxLength: 3 }),
        fc.subarray(['unique', 'prepareUnique', 'hidden', 'expireAfterSeconds', 'background', 'ns']),
      )
      .map(([fields, traits]) => [...fields, ...traits.flatMap((name) => fieldsOf([name, new Int32(1)]))])
    fc.assert(
      fc.property(specification, (wanted) => {
        const relaxed = indexWhileDeferred(wanted, [])
        expect(differOnlyInDeferredOptions(relaxed, wanted)).toBe(true)
        expect(canBecome(relaxed, wanted)).toBe(true)
        const { unique, prepareUnique, hidden } = deferredOptionsOf(relaxed)
        expect({ unique, prepareUnique, hidden }).toEqual({ unique: false, prepareUnique: false, hidden: false })
      }),
    )
  })
})

describe('two indexes differ only in deferred options', () => {
  const base: RawField[] = [
    ['v', new Int32(2)],
    [
      'key',
      nested([
        ['a', 1],
        ['b', 1],
      ]),
    ],
    ['name', 'a_b'],
  ]
  const index = (...more: RawField[]) => fieldsOf(...base, ...more)

  it('but collMod can only add an expiry, not remove one', () => {
    const ttl = index(['expireAfterSeconds', new Int32(1)])
    expect(canBecome(index(), ttl)).toBe(true)
    expect(canBecome(ttl, index())).toBe(false)
  })

  it.each<[string, RawField[], RawField[]]>([
    ['unique', [['unique', true]], []],
    ['prepareUnique', [['prepareUnique', true]], []],
    ['hidden', [], [['hidden', true]]],
    ['expireAfterSeconds', [['expireAfterSeconds', new Int32(1)]], [['expireAfterSeconds', Long.fromInt(2)]]],
    ['background', [], [['background', true]]],
    [
      'the order of fields',
      [
        ['sparse', true],
        ['weights', 1],
      ],
      [
        ['weights', 1],
        ['sparse', true],
      ],
    ],
  ])('when they differ in %s', (_, one, other) => {
    expect(differOnlyInDeferredOptions(index(...one), index(...other))).toBe(true)
    expect(differOnlyInDeferredOptions(index(...other), index(...one))).toBe(true)
  })

  it.each<[string, RawField[], RawField[]]>([
    [
      'key order',
      [
        [
          'key',
          nested([
            ['a', 1],
            ['b', 1],
          ]),
        ],
      ],
      [
        [
          'key',
          nested([
            ['b', 1],
            ['a', 1],
          ]),
        ],
      ],
    ],
    ['the type of a direction', [['key', nested([['a', new Int32(1)]])]], [['key', nested([['a', new Double(1)]])]]],
    ['sparse', [['sparse', true]], []],
    ['collation', [['collation', collation]], []],
    [
      'the partial filter',
      [['partialFilterExpression', nested([['a', 1]])]],
      [['partialFilterExpression', nested([['a', 2]])]],
    ],
  ])('but not when they differ in %s', (_, one, other) => {
    expect(differOnlyInDeferredOptions(fieldsOf(...one), fieldsOf(...other))).toBe(false)
    expect(differOnlyInDeferredOptions(fieldsOf(...other), fieldsOf(...one))).toBe(false)
  })
})

describe('index and collection options', () => {
  it('are true for the same values as in the server', () => {
    const one = deferredOptionsOf(
      fieldsOf(['unique', new Double(1)], ['hidden', Long.fromInt(1)], ['expireAfterSeconds', 60]),
    )
    expect(one).toEqual({ unique: true, prepareUnique: false, hidden: true, expireAfterSeconds: typedOf(60) })
    expect(deferredOptionsOf(fieldsOf(['unique', 0], ['hidden', false]))).toMatchObject({
      unique: false,
      hidden: false,
    })
  })

  it('are equal if their numbers have the same value in any BSON type', () => {
    expect(sameNumber(typedOf(new Int32(60)), typedOf(Long.fromInt(60)))).toBe(true)
    expect(sameNumber(typedOf(new Int32(60)), typedOf(new Double(60)))).toBe(true)
    expect(sameNumber(typedOf(new Int32(60)), typedOf(new Double(60.5)))).toBe(false)
    expect(sameNumber(typedOf(new Int32(60)), undefined)).toBe(false)
  })

  it('show whether a collection is capped or collated', () => {
    expect(isCapped(fieldsOf(['capped', new Double(1)]))).toBe(true)
    expect(isCapped(fieldsOf(['capped', false], ['size', 1]))).toBe(false)
    expect(isCollated(fieldsOf(['collation', collation]))).toBe(true)
    expect(isCollated(fieldsOf(['collation', simple]))).toBe(false)
    expect(isCollated([])).toBe(false)
    expect(indexName(fieldsOf(['key', nested([])], ['name', 'é']))).toBe('é')
  })
})

describe('the collMod for changed options', () => {
  const validator = nested([['a', nested([['$exists', true]])]])
  const images = nested([['enabled', true]])

  it('is empty when no option that collMod can change differs', () => {
    const options = fieldsOf(['validator', validator], ['changeStreamPreAndPostImages', images])
    expect(collModOptions(options, options)).toEqual([])
    expect(collModOptions(fieldsOf(['capped', true], ['size', 1]), fieldsOf(['capped', true], ['size', 2]))).toEqual([])
  })

  it('treats a missing option as its default, which the server makes explicit after any collMod', () => {
    const explicit = fieldsOf(['validator', validator], ['validationLevel', 'strict'], ['validationAction', 'error'])
    expect(collModOptions(fieldsOf(['validator', validator]), explicit)).toEqual([])
    expect(collModOptions(explicit, fieldsOf(['validator', validator]))).toEqual([])
  })

  it('sets new options and resets removed ones', () => {
    const full = fieldsOf(
      ['validator', validator],
      ['validationLevel', 'moderate'],
      ['validationAction', 'warn'],
      ['changeStreamPreAndPostImages', images],
    )
    expect(collModOptions([], full)).toEqual(full)
    expect(collModOptions(full, [])).toEqual(
      fieldsOf(
        ['validator', nested([])],
        ['validationLevel', 'strict'],
        ['validationAction', 'error'],
        ['changeStreamPreAndPostImages', nested([['enabled', false]])],
      ),
    )
  })

  it('property: leaves no further difference that collMod can change', () => {
    const options = fc
      .subarray(['validator', 'validationLevel', 'validationAction', 'changeStreamPreAndPostImages', 'other'])
      .chain((names) => fc.tuple(...names.map((name) => anyValue.map((value) => ({ name, value })))))
    fc.assert(
      fc.property(options, options, (from, to) => {
        const changes = collModOptions(from, to)
        const changed = from.filter(({ name }) => !fieldNamed(changes, name))
        expect(collModOptions([...changed, ...changes], to)).toEqual([])
      }),
    )
  })
})
