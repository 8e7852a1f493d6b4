import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { ObservedDefinitions } from '../../src/apply/observed-definitions.ts'

const one = 'collection 1'
const two = 'collection 2'
const known = (): boolean => true
const gone = (): boolean => false
const touching = (...uuids: string[]): Map<string, Set<string>> => new Map([['app', new Set(uuids)]])

describe('definitions that were read ahead of their events', () => {
  it('are those of a database up to the time of the read, and of no other', () => {
    const seen = new ObservedDefinitions()
    expect(seen.hasAll(touching(), 1n, known)).toBe(false)
    seen.add({ database: 'app', time: 10n, indexesOf: new Set() })
    expect(seen.hasAll(touching(), 10n, known)).toBe(true)
    expect(seen.hasAll(touching(), 11n, known)).toBe(false)
    expect(seen.hasAll(new Map([['other', new Set<string>()]]), 10n, known)).toBe(false)
    expect(seen.hasAll(new Map([...touching(), ['other', new Set<string>()]]), 10n, known)).toBe(false)
  })

  it('hold for the indexes of a collection only as of when those were read', () => {
    const seen = new ObservedDefinitions()
    seen.add({ database: 'app', time: 10n, indexesOf: new Set([one]) })
    seen.add({ database: 'app', time: 20n, indexesOf: new Set([two]) })
    expect(seen.hasAll(touching(one), 10n, known)).toBe(true)
    expect(seen.hasAll(touching(one), 11n, known)).toBe(false)
    expect(seen.hasAll(touching(two), 20n, known)).toBe(true)
    expect(seen.hasAll(touching(one, two), 20n, known)).toBe(false)
  })

  it('hold for a collection that no longer existed at the read', () => {
    const seen = new ObservedDefinitions()
    seen.add({ database: 'app', time: 10n, indexesOf: new Set() })
    expect(seen.hasAll(touching(one), 10n, gone)).toBe(true)
    expect(seen.hasAll(touching(one), 11n, gone)).toBe(false)
  })

  it('are never more than the reads have shown, in whatever order these come', () => {
    const look = fc.record({
      database: fc.constantFrom('app', 'other'),
      time: fc.bigInt({ min: 1n, max: 20n }),
      indexesOf: fc.uniqueArray(fc.constantFrom(one, two)).map((uuids) => new Set(uuids)),
    })
    fc.assert(
      fc.property(fc.array(look), fc.bigInt({ min: 1n, max: 20n }), fc.constantFrom(one, two), (looks, time, uuid) => {
        const seen = new ObservedDefinitions()
        for (const each of looks) seen.add(each)
        const ofApp = looks.filter((each) => each.database === 'app' && each.time >= time)
        expect(seen.hasAll(touching(), time, known)).toBe(ofApp.length > 0)
        const indexed = looks.some((each) => each.time >= time && each.indexesOf.has(uuid))
        expect(seen.hasAll(touching(uuid), time, known)).toBe(ofApp.length > 0 && indexed)
      }),
    )
  })
})
