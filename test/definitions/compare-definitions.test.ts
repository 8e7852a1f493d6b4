import { Int32, Long } from 'mongodb'
import { describe, expect, it } from 'vitest'
import {
  compareDefinitions,
  type DefinitionStage,
  type ListedDefinition,
} from '../../src/definitions/compare-definitions.ts'
import { indexWhileDeferred, optionsWhileDeferred } from '../../src/domain/definition.ts'
import { readFields } from '../../src/domain/raw-bson.ts'
import { nested, type RawField, rawDocument } from '../support/bson-values.ts'

const fieldsOf = (...fields: RawField[]) => readFields(rawDocument(fields))
const index = (name: string, key: string, ...traits: RawField[]) =>
  fieldsOf(['v', new Int32(2)], ['key', nested([[key, new Int32(1)]])], ['name', name], ...traits)
const collection = (name: string, options: RawField[] = [], indexes: ListedDefinition['indexes'] = []) => ({
  name,
  type: 'collection',
  options: fieldsOf(...options),
  indexes,
  shardKey: null,
})
const view = (name: string, on: string): ListedDefinition => ({
  name,
  type: 'view',
  options: fieldsOf(['viewOn', on]),
  indexes: [],
  shardKey: null,
})
/** Returns the definition in the form that the destination has until the commit. */
const deferred = (one: ListedDefinition): ListedDefinition => ({
  ...one,
  options: optionsWhileDeferred(one.options),
  indexes: one.indexes.map((specification) => indexWhileDeferred(specification, one.options)),
})
const compare = (
  source: ListedDefinition[],
  destination: ListedDefinition[],
  stage: DefinitionStage = 'deferred',
  buildsIndexes = true,
) => compareDefinitions('app', source, destination, stage, buildsIndexes)

const unique = ['unique', true] as const
const prepared = ['prepareUnique', true] as const
const hidden = ['hidden', true] as const
const never = ['expireAfterSeconds', new Int32(2_147_483_647)] as const
const expires = ['expireAfterSeconds', new Int32(60)] as const
const capped: RawField[] = [
  ['capped', true],
  ['size', new Int32(4096)],
  ['max', new Int32(10)],
]
const full = collection('things', capped, [index('u', 'u', unique), index('t', 't', expires), index('h', 'h', hidden)])

describe('definitions while options are deferred', () => {
  it('are equal in their deferred form', () => {
    expect(compare([full, view('v', 'things')], [deferred(full), view('v', 'things')])).toEqual([])
  })

  it.each([
    ['unique', index('u', 'u', unique), 'u'],
    ['prepareUnique', index('u', 'u', prepared), 'u'],
  ])('differ by an index that is %s too early', (_, early, field) => {
    const wanted = collection('things', [], [index('u', 'u', unique)])
    expect(compare([wanted], [collection('things', [], [early])])).toEqual([
      { namespace: 'app.things', kind: 'index', field },
    ])
  })

  it('differ by a TTL index that already expires documents', () => {
    const wanted = collection('things', [], [index('t', 't', expires)])
    expect(compare([wanted], [wanted])).toEqual([{ namespace: 'app.things', kind: 'index', field: 't' }])
  })
})

describe('definitions at the verdict', () => {
  it('are equal with prepared unique indexes, restored sizes, and deferred TTL and hidden options', () => {
    const existing = collection('things', capped, [index('u', 'u', prepared), index('t', 't', never), index('h', 'h')])
    expect(compare([full], [existing], 'prepared')).toEqual([])
  })

  it('are equal when numbers differ only in type, because the server widens them', () => {
    const wide: RawField[] = [
      ['capped', true],
      ['size', new Long(4096)],
      ['max', new Long(10)],
    ]
    expect(compare([collection('log', capped)], [collection('log', wide)], 'prepared')).toEqual([])
  })

  it.each([[0], [-1], [2 ** 31 - 1]])('are equal when a maximum of %i means no maximum', (max) => {
    const without = capped.slice(0, 2)
    const existing = collection('log', [...without, ['max', new Int32(max)]])
    expect(compare([collection('log', without)], [existing], 'prepared')).toEqual([])
  })

  it.each([
    ['another size', [capped[0], ['size', new Int32(8192)], capped[2]] as RawField[], 'size'],
    ['another maximum', [capped[0], capped[1], ['max', new Int32(11)]] as RawField[], 'max'],
  ])('differ by %s', (_, options, field) => {
    expect(compare([collection('log', capped)], [collection('log', options)], 'prepared')).toEqual([
      { namespace: 'app.log', kind: 'option', field },
    ])
  })

  it('differ by an index that is hidden only on the destination, or is not unique there', () => {
    const wanted = collection('things', [], [index('a', 'a'), index('u', 'u', unique)])
    const existing = collection('things', [], [index('a', 'a', hidden), index('u', 'u')])
    expect(compare([wanted], [existing], 'prepared').map(({ field }) => field)).toEqual(['a', 'u'])
  })
})

describe('definitions at any time', () => {
  it('differ by a collection that is missing on the destination, is a view there, or exists only there', () => {
    const source = [collection('a'), collection('b')]
    const destination = [view('b', 'a'), collection('c')]
    expect(compare(source, destination)).toEqual([
      { namespace: 'app.a', kind: 'collection' },
      { namespace: 'app.b', kind: 'collection' },
      { namespace: 'app.c', kind: 'collection', by: 'foreignWrite' },
    ])
  })

  it.each([
    ['missing', [], ['a']],
    ['extra', [index('a', 'a'), index('x', 'x')], ['x']],
    ['another key', [index('a', 'b')], ['a']],
    ['sparse', [index('a', 'a', ['sparse', true])], ['a']],
  ])('differ by an index: %s', (_, indexes, fields) => {
    const found = compare([collection('c', [], [index('a', 'a')])], [collection('c', [], indexes)], 'prepared')
    expect(found.map(({ field }) => field)).toEqual(fields)
  })

  it('do not differ by a missing index, which the commit builds or reports', () => {
    expect(compare([collection('c', [], [index('a', 'a')])], [collection('c')], 'deferred')).toEqual([])
  })

  it('do not differ by a missing index when the sync does not build indexes', () => {
    expect(compare([collection('c', [], [index('a', 'a')])], [collection('c')], 'deferred', false)).toEqual([])
  })

  it('are equal when one of two indexes that differ only in deferred options is missing', () => {
    const conflicting = collection('c', [], [index('a', 'a'), index('b', 'a', unique)])
    expect(compare([conflicting], [collection('c', [], [index('a', 'a')])])).toEqual([])
  })

  it('do not differ by the option temp, or by defaults that collMod makes explicit', () => {
    const existing = collection('c', [
      ['validationLevel', 'strict'],
      ['validationAction', 'error'],
    ])
    expect(compare([collection('c', [['temp', true]])], [existing])).toEqual([])
  })
})
