import fc from 'fast-check'
import { BSON } from 'mongodb'
import { describe, expect, it } from 'vitest'
import { deferredOptionsOf, type IndexSpecification, indexName } from '../../src/domain/definition.ts'
import {
  deferredOptionsOn,
  existingIndexes,
  foundSpecifications,
  isIncomplete,
  unevenIndexes,
} from '../../src/domain/existing-indexes.ts'
import { readFields } from '../../src/domain/raw-bson.ts'

const specification = (name: string, options: object = {}): IndexSpecification =>
  readFields(Buffer.from(BSON.serialize({ v: 2, key: { [name]: 1 }, name, ...options })))

const names = ['a', 'b', 'c']
/** Generates the indexes of one shard. The shard has each index finished, unfinished or not at all. */
const shard = fc.record(
  Object.fromEntries(names.map((name) => [name, fc.constantFrom('finished', 'unfinished', 'none')])),
)
const cluster = fc.array(shard, { minLength: 1, maxLength: 4 })

function onShards(states: Record<string, string>[], of: (name: string, at: number) => IndexSpecification) {
  const having = (state: Record<string, string>, wanted: string): string[] =>
    names.filter((name) => state[name] === wanted)
  return new Map(
    states.map((state, at) => [
      `shard${at}`,
      { finished: having(state, 'finished').map((name) => of(name, at)), unfinished: having(state, 'unfinished') },
    ]),
  )
}

describe('the indexes of a sharded collection', () => {
  it('count only if every shard has finished them, and are found if any shard has', () => {
    fc.assert(
      fc.property(cluster, fc.nat(), (states, pick) => {
        const shards = onShards(states, (name) => specification(name))
        const listed = [...shards.values()][pick % states.length]?.finished ?? []
        const existing = existingIndexes(listed, unevenIndexes(shards))
        const everywhere = names.filter((name) => states.every((state) => state[name] === 'finished'))
        const anywhere = names.filter((name) => states.some((state) => state[name] === 'finished'))
        expect(existing.indexes.map(indexName)).toEqual(everywhere)
        expect([...foundSpecifications(existing).keys()].sort()).toEqual(anywhere)
        for (const one of existing.uneven ?? []) {
          const lacking = states.flatMap((state, at) => (state[one.name] === 'finished' ? [] : [`shard${at}`]))
          expect(one.missingOn).toEqual(lacking)
        }
      }),
    )
  })

  it('that differ between shards in more than deferred options are incomplete, and the order of fields does not matter', () => {
    const [first, other] = [specification('a'), specification('a', { sparse: true })]
    const of = (...specifications: IndexSpecification[]) =>
      unevenIndexes(new Map(specifications.map((one, at) => [`${at}`, { finished: [one], unfinished: [] }])))
    expect(of(first, [...first].reverse())).toEqual([])
    expect(of(first, other).map(isIncomplete)).toEqual([true])
    expect(of(first, specification('a', { unique: true })).map(isIncomplete)).toEqual([false])
  })

  const options = fc.record(
    {
      unique: fc.constant(true),
      prepareUnique: fc.constant(true),
      hidden: fc.constant(true),
      expireAfterSeconds: fc.constantFrom(5, 9, 2 ** 31 - 1),
    },
    { requiredKeys: [] },
  )

  it('have the deferred options of a single shard, or those that need no change on any of several shards', () => {
    fc.assert(
      fc.property(fc.array(options, { minLength: 1, maxLength: 3 }), (all) => {
        const found = all.map((one) => specification('a', one))
        const each = found.map(deferredOptionsOf)
        const [restoring, deferring] = [deferredOptionsOn(found, 'restoring'), deferredOptionsOn(found, 'deferring')]
        if (found.length === 1) for (const one of [restoring, deferring]) expect(one).toEqual(each[0])
        expect(restoring.unique).toBe(each.every((one) => one.unique))
        expect(restoring.hidden).toBe(each.every((one) => one.hidden))
        if (restoring.unique || restoring.prepareUnique) {
          const rejects = each.every((one) => one.unique || one.prepareUnique)
          expect(rejects).toBe(true)
        }
        for (const name of ['unique', 'prepareUnique', 'hidden'] as const) {
          expect(deferring[name]).toBe(each.some((one) => one[name]))
        }
      }),
    )
  })
})
