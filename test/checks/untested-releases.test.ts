import { describe, expect, it, test } from 'vitest'
import type { CheckedClusters } from '../../src/checks/check.ts'
import { incompatible } from '../../src/checks/releases.ts'
import { checkTestedReleases, untestedRelease } from '../../src/checks/untested-releases.ts'
import { checkVersions, releaseThatKeepsTimestamps } from '../../src/checks/versions.ts'

const between = (source: string, destination: string): CheckedClusters => {
  const facts = (version: string) => ({ topology: 'replicaSet', version, major: Number.parseInt(version, 10) })
  return {
    configuration: { writeBlockingGiven: false },
    facts: { source: facts(source), destination: facts(destination) },
  } as unknown as CheckedClusters
}

describe('a release that no test has run with', () => {
  it.each([
    ['source', '5.0.32'],
    ['source', '6.0.0'],
    ['source', '6.0.27'],
    ['destination', '6.0.27'],
  ] as const)('is not reported for a %s of %s', (role, version) => expect(untestedRelease(role, version)).toEqual([]))

  it.each([
    ['source', '4.4.29'],
    ['source', '6.3.2'],
    ['source', '7.0.28'],
    ['source', '8.0.17'],
    ['source', '8.2.1-rc0'],
    ['source', ''],
    ['destination', '5.0.32'],
    ['destination', '7.0.28'],
    ['destination', '8.0.17'],
  ] as const)('is a warning for a %s of %s', (role, version) => {
    const [found] = untestedRelease(role, version)
    expect(found).toMatchObject({
      severity: 'warning',
      name: 'UntestedRelease',
      message: expect.stringContaining(`the ${role} runs ${version}`),
    })
    expect(found?.message).toContain('the tested sources are 5.0 and 6.0, the tested destination is 6.0')
    expect(found?.remedy).toMatch(/copies of both clusters.*tandem commit --dry-run.*docs\/server-versions\.md/)
  })

  it('is reported for each cluster separately, and does not cause a refusal', async () => {
    const names = async (source: string, destination: string) =>
      (await checkTestedReleases(between(source, destination))).map(({ severity, message }) => [
        severity,
        message.split(' runs')[0],
      ])
    expect(await names('6.0.27', '6.0.27')).toEqual([])
    expect(await names('6.0.27', '8.0.17')).toEqual([['warning', 'the destination']])
    expect(await names('7.0.28', '8.0.17')).toEqual([
      ['warning', 'the source'],
      ['warning', 'the destination'],
    ])
  })
})

test.each([
  ['6.0.27', '6.0.17', true],
  ['6.0.27', '8.2.1', true],
  ['8.0.17', '8.2.1', true],
  ['7.3.4', '8.0.17', true],
  ['7.0.28', '6.0.27', false],
  ['8.2.1', '8.0.17', false],
  ['7.3.4', '7.0.28', false],
  ['6.0.27', '9.0.0', false],
])('a sync from %s to %s is supported: %j', async (source, destination, supported) => {
  const found = await checkVersions(between(source, destination))
  expect(found.map(({ name }) => name)).toEqual(supported ? [] : ['UnsupportedVersion'])
})

test.each([
  ['6.0.16', '6.0.17'],
  ['6.3.2', '7.0.13'],
  ['7.0.12', '7.0.13'],
  ['7.3.4', '8.0'],
])('for a destination of %s, which replaces empty timestamps, check recommends an upgrade to %s', (version, release) =>
  expect(releaseThatKeepsTimestamps(version)).toBe(release),
)

describe('the remedy for a featureCompatibilityVersion that is not the release’s own', () => {
  it.each([
    ['6.0.27', { version: '5.0' }, 'run setFeatureCompatibilityVersion "6.0" there'],
    ['7.0.28', { version: '6.0' }, 'run setFeatureCompatibilityVersion "7.0", confirm: true there'],
    ['8.0.17', { version: '7.0', targetVersion: '8.0', previousVersion: '7.0' }, '"8.0", confirm: true there'],
  ])('is a command that %s accepts', (version, found, remedy) => {
    expect(incompatible('cluster0', version, found)).toMatchObject({
      severity: 'error',
      name: 'UnsupportedVersion',
      remedy: expect.stringContaining(remedy),
    })
  })

  it('is not needed if the version is the release’s own, or if it is unknown', () => {
    expect(incompatible('cluster0', '8.0.17', { version: '8.0' })).toBeNull()
    expect(incompatible('cluster0', '8.0.17', undefined)).toBeNull()
  })
})
