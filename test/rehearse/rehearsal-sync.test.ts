import { describe, expect, it } from 'vitest'
import { ownerOf, type StoredTraces } from '../../src/rehearse/rehearsal-sync.ts'

const synced = ['r_one', 'r_two']
const instances = ['rehearsal-1-abc', 'rehearsal-2-abc']
const filtered = { reverse: false, synced, instances }
const reversible = { reverse: true, synced, instances }

const nothing: StoredTraces = { record: null, ids: [] }
const ofInstances: StoredTraces = { record: null, ids: ['rehearsal-1-abc'] }
const ofOthers: StoredTraces = { record: null, ids: ['rehearsal-1-abc', 'theirs'] }
const recordOf = (configuration: object): StoredTraces => ({ record: { _id: 'sync', configuration }, ids: [] })
const withFilter = recordOf({ includeNamespaces: synced.map((database) => ({ database })) })
const withoutFilter = recordOf({ reversible: true, includeNamespaces: null })

describe('the owner of a stored sync', () => {
  it('is the rehearsal if its instances have taken part, or if the filter is its own', () => {
    expect(ownerOf([nothing, ofInstances], reversible, false)).toBe('rehearsal')
    expect(ownerOf([withFilter], filtered, false)).toBe('rehearsal')
  })

  it('is unknown without a proof, for example of a sync without a filter', () => {
    expect(ownerOf([nothing, nothing], reversible, false)).toBe('unknown')
    expect(ownerOf([withoutFilter], reversible, false)).toBe('unknown')
    expect(ownerOf([], reversible, false)).toBe('unknown')
  })

  it('remains the rehearsal if the cluster with the proof cannot be read any more', () => {
    expect(ownerOf([nothing], reversible, true)).toBe('rehearsal')
    expect(ownerOf([], filtered, true)).toBe('rehearsal')
  })

  it('is another one if anything stored is not the rehearsal’s, also if it was the rehearsal before', () => {
    expect(ownerOf([ofInstances, ofOthers], reversible, true)).toBe('other')
    expect(ownerOf([ofInstances, withFilter], reversible, true)).toBe('other')
    expect(ownerOf([withoutFilter], filtered, true)).toBe('other')
  })
})
