import { describe, expect, it, test } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkCompatibility, checkReleases, tellsDefinitionsRight } from '../../src/checks/releases.ts'
import { readFacts } from '../../src/mongo/identity.ts'
import { oneSet } from '../mongo/one-set.ts'

const one = oneSet()

async function clusters(): Promise<CheckedClusters> {
  const facts = await readFacts(one.cluster)
  return {
    source: one.cluster,
    destination: one.cluster,
    facts: { source: facts, destination: facts },
  } as CheckedClusters
}

const setCompatibility = (version: string) =>
  one.client.db('admin').command({ setFeatureCompatibilityVersion: version })

describe('releases whose change streams are known to be wrong', () => {
  test.each([
    ['6.0.0', false],
    ['6.0.12', false],
    ['6.0.13', true],
    ['6.0.27', true],
    ['7.0.3', false],
    ['7.0.3-rc0', false],
    ['7.0.4', true],
    ['5.0.3', true],
    ['8.0.0', true],
  ])('%s: %j', (version, right) => expect(tellsDefinitionsRight(version)).toBe(right))

  it('are warned of as the source only', async () => {
    const present = await clusters()
    expect(await checkReleases(present)).toEqual([])
    const old = { ...present.facts.source, version: '6.0.11' }
    expect(await checkReleases({ ...present, facts: { ...present.facts, source: old } })).toMatchObject([
      { severity: 'warning', name: 'KnownServerFault', message: expect.stringContaining('6.0.11') },
    ])
    expect(await checkReleases({ ...present, facts: { ...present.facts, destination: old } })).toEqual([])
  })
})

describe('a cluster that is not all of its release', () => {
  it('is refused, as source and as destination, with the command that mends it', async () => {
    expect(await checkCompatibility(await clusters())).toEqual([])
    await setCompatibility('5.0')
    try {
      const found = await checkCompatibility(await clusters())
      expect(found).toHaveLength(2)
      expect(found[0]).toMatchObject({
        severity: 'error',
        name: 'UnsupportedVersion',
        message: expect.stringMatching(/runs 6\.0\.\d+ and has featureCompatibilityVersion 5\.0$/),
        remedy: expect.stringContaining('setFeatureCompatibilityVersion "6.0"'),
      })
    } finally {
      await setCompatibility('6.0')
    }
    expect(await checkCompatibility(await clusters())).toEqual([])
  })
})
