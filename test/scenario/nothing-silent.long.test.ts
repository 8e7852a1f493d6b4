import { expect, it, onTestFinished } from 'vitest'
import type { JournalMessage } from '../../src/domain/journal.ts'
import { failPoint } from '../support/fail-point.ts'
import { startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { canCommit, commit } from '../support/reversible-pair.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'
import { until } from '../support/until.ts'

/** docs/logs.md: what ends a sync is in the log with what was under way, and who commanded what is in it at every verbosity. */

const pair = pairedSets({})

type Line = Record<string, unknown>

function linesOf(tandem: Tandem): Line[] {
  return tandem
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Line)
}

const said = (tandem: Tandem, about: JournalMessage): Line[] =>
  linesOf(tandem).filter(({ message }) => message === about)

const startLogging = (...extraArgs: string[]): Promise<Tandem> =>
  startTandem({ cluster0: pair.source.uri, cluster1: pair.destination.uri, extraArgs })

it('an unforeseen fault in a commit step is named by step, command, namespace, code and text; the log has its stack', async () => {
  await using tandem = await startLogging('--verbosity', 'WARN')
  await pair.sourceClient.db('app').collection('things').insertOne({ x: 1 })
  await pair.sourceClient.db('app').collection('things').createIndex({ x: 1 }, { unique: true })
  await startSync(tandem, { verification: { enabled: false } })
  await canCommit(tandem)
  await using _fault = await failPoint(pair.destinationClient, 'failCommand', {
    failCommands: ['collMod'],
    errorCode: 9,
  })
  expect(await tandem.post('commit')).toMatchObject({ status: 200 })
  const { failure } = await tandem.waitFor(({ state }) => state === 'FAILED', { timeoutSeconds: 60, what: 'FAILED' })
  expect(failure?.error).toBe('InternalError')
  expect(failure?.errorDescription).toMatch(/^changing options of app\.things: /)
  expect(failure?.errorDescription).toMatch(/collMod on cluster1, app\.things/)
  expect(failure?.errorDescription).toMatch(/FailedToParse \(9\)/)
  expect(failure?.errorDescription).toMatch(/Failing command via 'failCommand' failpoint/)

  expect(said(tandem, 'failed')).toMatchObject([
    {
      level: 'error',
      error: 'InternalError',
      errorDescription: failure?.errorDescription,
      during: 'syncing.finishing.awaiting',
      sync: 'committing.preparing',
      stack: expect.stringMatching(/MongoServerError[\s\S]+\n\s+at /),
    },
  ])
  expect(said(tandem, 'retrying')).toEqual([])
  // Who commanded what does not depend on the verbosity.
  expect(said(tandem, 'audit').map(({ command, outcome }) => [command, outcome])).toEqual(
    ['start', 'commit'].flatMap((command) => [
      [command, 'received'],
      [command, 'accepted'],
    ]),
  )
})

it('each change of leading, owning, waiting, copying, verifying and taking over is one line', async () => {
  const things = pair.sourceClient.db('app').collection<{ _id: number }>('things')
  await things.insertMany(Array.from({ length: 100 }, (_, _id) => ({ _id })))
  const instances = await startInstances([], { cluster0: pair.source.uri, cluster1: pair.destination.uri })
  onTestFinished(() => instances.stop())
  const a = await instances.start('a')
  await until('connected: a', () => a.progress())
  await startSync(a, {})
  await canCommit(a)
  const b = await instances.start('b')
  await until('connected: b', () => b.progress())
  await startSync(b, {})
  await until('a share for b', async () => expect(said(b, 'partitions claimed')).not.toEqual([]))
  await things.createIndex({ x: 1 })
  await until('a barrier', async () => expect(said(b, 'barrier passed')).toHaveLength(1))

  for (const message of ['lease taken', 'copy ended', 'verification began', 'verification pass ended'] as const) {
    expect(said(a, message), message).toHaveLength(1)
  }
  expect(said(a, 'collection copied')).toMatchObject([{ namespace: 'app.things', bytes: expect.any(Number) }])
  expect(said(a, 'coordinator')).toMatchObject([{ coordinatorID: 'a', term: 1, isThisInstance: true }])
  expect(said(b, 'coordinator')).toMatchObject([{ coordinatorID: 'a', term: 1, isThisInstance: false }])
  expect(said(a, 'partitions given back')).not.toEqual([])
  const [reached] = said(b, 'barrier reached')
  expect(reached).toMatchObject({ databases: ['app'], clusterTime: expect.stringMatching(/^\d+:\d+$/) })
  expect(said(a, 'barrier led')).toMatchObject([{ clusterTime: reached?.['clusterTime'], databases: ['app'] }])

  await instances.kill9('a')
  await until('a takeover', async () => {
    expect(said(b, 'partitions claimed').at(-1)).toMatchObject({ from: ['a'] })
  })
  expect(said(b, 'instance evicted')).toMatchObject([{ level: 'warn', instance: 'a' }])
  expect(said(b, 'coordinator').at(-1)).toMatchObject({ coordinatorID: 'b', term: 2, isThisInstance: true })
  await commit(b)
  expect(said(b, 'verdict pass').at(-1)).toMatchObject({ differences: 0 })
  expect(said(b, 'verdict')).toMatchObject([{ differences: 0 }])
  await until('the lease given back', async () => expect(said(b, 'lease given back')).toHaveLength(1))
})
