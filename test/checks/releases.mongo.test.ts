import { describe, expect, it, test } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { checkCompatibility, checkReleases, reportsDefinitionsCorrectly } from '../../src/checks/releases.ts'
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

describe('releases with a known bug in change streams', () => {
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
  ])('%s emits correct events for definitions: %j', (version, correct) =>
    expect(reportsDefinitionsCorrectly(version)).toBe(correct),
  )

  it('cause a warning as the source, but not as the destination', async () => {
    const present = await clusters()
    expect(await checkReleases(present)).toEqual([])
    const old = { ...present.facts.source, version: '6.0.11' }
    expect(await checkReleases({ ...present, facts: { ...present.facts, source: old } })).toMatchObject([
      { severity: 'warning', name: 'KnownServerFault', message: expect.stringContaining('6.0.11') },
    ])
    expect(await checkReleases({ ...present, facts: { ...present.facts, destination: old } })).toEqual([])
  })
})

describe('a cluster whose featureCompatibilityVersion differs from its release', () => {
  it('is refused as source and as destination, and the remedy names the command to run', async () => {
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
