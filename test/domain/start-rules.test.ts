import { describe, expect, it } from 'vitest'
import { RefusedError } from '../../src/domain/errors.ts'
import { refuseContradictions, refuseIrreversible } from '../../src/domain/start-rules.ts'
import { configuration } from '../machines/instance-model.ts'

const reversible = { ...configuration, reversible: true }
const six = { topology: 'replicaSet', version: '6.0.27', major: 6, shards: [] } as const
const seven = { topology: 'replicaSet', version: '7.0.14', major: 7, shards: [] } as const

function refusal(check: () => void): { name: string; description: string } | null {
  try {
    check()
    return null
  } catch (error) {
    if (!(error instanceof RefusedError)) throw error
    return { name: error.refusal, description: error.message }
  }
}

describe('reversible true', () => {
  it.each([
    ['buildIndexes never', { buildIndexes: 'never' }, /never/],
    ['includeNamespaces', { includeNamespaces: [{ database: 'a' }] }, /includeNamespaces/],
    ['excludeNamespaces', { excludeNamespaces: [{ database: 'a' }] }, /excludeNamespaces/],
  ] as const)('is refused with %s', (_what, options, description) => {
    expect(refusal(() => refuseContradictions({ ...reversible, ...options } as typeof reversible))).toEqual({
      name: 'ReversibleNotSupported',
      description: expect.stringMatching(description),
    })
    expect(refusal(() => refuseContradictions({ ...configuration, ...options } as typeof configuration))).toBeNull()
  })

  it.each([
    ['a source older than 6.0', { ...six, version: '5.0.31', major: 5 }, six, /older than 6\.0 \(it is 5\.0\.31\)/],
    ['a replica set and a sharded cluster', six, { ...six, topology: 'sharded' }, /replica set and a sharded cluster/],
    ['a sharded cluster and a replica set', { ...six, topology: 'sharded' }, six, /replica set and a sharded cluster/],
    ['clusters of different major versions', six, seven, /source 6\.0\.27, destination 7\.0\.14/],
    [
      'clusters of different minor versions',
      { ...six, version: '8.0.17', major: 8 },
      { ...six, version: '8.2.1', major: 8 },
      /source 8\.0\.17, destination 8\.2\.1/,
    ],
  ] as const)('is refused for %s', (_what, source, destination, description) => {
    expect(refusal(() => refuseIrreversible(reversible, source, destination))).toEqual({
      name: 'ReversibleNotSupported',
      description: expect.stringMatching(description),
    })
    expect(refusal(() => refuseIrreversible(configuration, source, destination))).toBeNull()
  })

  it('is accepted between replica sets of the same release series, also with different patch versions', () => {
    expect(refusal(() => refuseContradictions(reversible))).toBeNull()
    expect(refusal(() => refuseIrreversible(reversible, six, { ...six, version: '6.0.20' }))).toBeNull()
  })
})

describe('a filter', () => {
  it.each(['includeNamespaces', 'excludeNamespaces'])(
    '%s is refused only with write blocking on both clusters',
    (field) => {
      const filtered = { ...configuration, [field]: [{ database: 'a' }] } as typeof configuration
      const blocking = (enableUserWriteBlocking: typeof configuration.enableUserWriteBlocking) =>
        refusal(() => refuseContradictions({ ...filtered, enableUserWriteBlocking }))
      expect(blocking('sourceAndDestination')).toEqual({
        name: 'WriteBlockingNotSupported',
        description: expect.stringMatching(/'destinationOnly' or 'none'/),
      })
      expect(blocking('destinationOnly')).toBeNull()
      expect(blocking('none')).toBeNull()
    },
  )
})
