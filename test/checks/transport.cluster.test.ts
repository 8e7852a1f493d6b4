import { expect, it, vi } from 'vitest'
import { pairedSets } from '../support/paired-sets.ts'
import { startRedis } from '../support/redis-server.ts'
import { patience } from '../support/reversible-pair.ts'
import { startSync, startTandem } from '../support/tandem-process.ts'

/** README: `check`, the log and progress warn about connections to other machines without TLS. */

const pair = pairedSets()

/**
 * 0.0.0.0 leads to the loopback interface of this machine, but it is not one of its addresses. tandem therefore treats it as an
 * address of another machine.
 */
const elsewhere = (uri: string): string => uri.replace(/127\.0\.0\.1:(\d+)/, '0.0.0.0:$1')

it('connections within this machine cause no warning', async () => {
  const { source, destination } = pair
  await using tandem = await startTandem({ cluster0: source.uri, cluster1: destination.uri })
  await vi.waitFor(async () => expect((await tandem.progress()).state).toBeTruthy(), patience)
  expect(await tandem.progress()).not.toHaveProperty('warnings')
  expect(tandem.output()).not.toContain('insecure connection')
})

it('check, the log and progress report connections without TLS, before and after a start', async () => {
  await using redis = await startRedis()
  const { source, destination } = pair
  const options = { cluster0: elsewhere(source.uri), cluster1: destination.uri }
  await using tandem = await startTandem({ ...options, extraArgs: ['--redis', elsewhere(redis.url)] })
  const named = [/^cluster0: the connections to 0\.0\.0\.0:\d+ have no TLS/, /^redis: the connections to 0\.0\.0\.0:/]
  const expected = named.map((text) => expect.stringMatching(text))
  await vi.waitFor(async () => expect((await tandem.progress()).warnings).toEqual(expected), patience)
  const { body } = await tandem.post('check', { source: 'cluster0', destination: 'cluster1' })
  const findings = body['findings'] as { name: string }[]
  expect(findings.filter(({ name }) => name === 'UnencryptedConnection')).toMatchObject(
    named.map((text) => ({ severity: 'warning', message: expect.stringMatching(text) })),
  )
  const logged = tandem
    .output()
    .split('\n')
    .filter((line) => line.includes('"message":"insecure connection"'))
    .map((line) => JSON.parse(line))
  expect(logged).toMatchObject(expected.map((problem) => ({ level: 'warn', problem })))
  await startSync(tandem, { enableUserWriteBlocking: 'destinationOnly' })
  await tandem.waitFor(({ canCommit }) => canCommit, { timeoutSeconds: 60, what: 'canCommit' })
  expect((await tandem.progress()).warnings).toEqual(expected)
})
