import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ObservedDefinitions } from '../../src/apply/observed-definitions.ts'

const one = 'collection 1'
const two = 'collection 2'
const known = (): boolean => true
const gone = (): boolean => false
const touching = (...uuids: string[]): Map<string, Set<string>> => new Map([['app', new Set(uuids)]])

describe('definitions that were observed ahead of their events', () => {
  it('cover a database up to the time of its read, and no other database', () => {
    const observed = new ObservedDefinitions()
    expect(observed.hasAll(touching(), 1n, known)).toBe(false)
    observed.add({ database: 'app', time: 10n, indexesOf: new Set() })
    expect(observed.hasAll(touching(), 10n, known)).toBe(true)
    expect(observed.hasAll(touching(), 11n, known)).toBe(false)
    expect(observed.hasAll(new Map([['other', new Set<string>()]]), 10n, known)).toBe(false)
    expect(observed.hasAll(new Map([...touching(), ['other', new Set<string>()]]), 10n, known)).toBe(false)
  })

  it('cover the indexes of a collection only up to the time at which they were read', () => {
    const observed = new ObservedDefinitions()
    observed.add({ database: 'app', time: 10n, indexesOf: new Set([one]) })
    observed.add({ database: 'app', time: 20n, indexesOf: new Set([two]) })
    expect(observed.hasAll(touching(one), 10n, known)).toBe(true)
    expect(observed.hasAll(touching(one), 11n, known)).toBe(false)
    expect(observed.hasAll(touching(two), 20n, known)).toBe(true)
    expect(observed.hasAll(touching(one, two), 20n, known)).toBe(false)
  })

  it('cover a collection that no longer existed when the catalog was read', () => {
    const observed = new ObservedDefinitions()
    observed.add({ database: 'app', time: 10n, indexesOf: new Set() })
    expect(observed.hasAll(touching(one), 10n, gone)).toBe(true)
    expect(observed.hasAll(touching(one), 11n, gone)).toBe(false)
  })

  it('never cover more than the reads have shown, in any order of the reads', () => {
    const read = fc.record({
      database: fc.constantFrom('app', 'other'),
      time: fc.bigInt({ min: 1n, max: 20n }),
      indexesOf: fc.uniqueArray(fc.constantFrom(one, two)).map((uuids) => new Set(uuids)),
    })
    fc.assert(
      fc.property(fc.array(read), fc.bigInt({ min: 1n, max: 20n }), fc.constantFrom(one, two), (reads, time, uuid) => {
        const observed = new ObservedDefinitions()
        for (const each of reads) observed.add(each)
        const ofApp = reads.filter((each) => each.database === 'app' && each.time >= time)
        expect(observed.hasAll(touching(), time, known)).toBe(ofApp.length > 0)
        const indexed = reads.some((each) => each.time >= time && each.indexesOf.has(uuid))
        expect(observed.hasAll(touching(uuid), time, known)).toBe(ofApp.length > 0 && indexed)
      }),
    )
  })
})
