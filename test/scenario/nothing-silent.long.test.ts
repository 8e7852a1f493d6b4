import { expect, it, onTestFinished } from 'vitest'
import type { JournalMessage } from '../../src/domain/journal.ts'
import { canCommit, commit } from '../support/commits.ts'
import { failPoint } from '../support/fail-point.ts'
import { startInstances } from '../support/instances.ts'
import { pairedSets } from '../support/paired-sets.ts'
import { startSync, startTandem, type Tandem } from '../support/tandem-process.ts'
import { until } from '../support/until.ts'

/** Tests docs/logs.md: the log names a failure with the operation under way, and contains the audit lines at every verbosity. */

const pair = pairedSets({})

type Line = Record<string, unknown>

function linesOf(tandem: Tandem): Line[] {
  return tandem
    .output()
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Line)
}

const logged = (tandem: Tandem, about: JournalMessage): Line[] =>
  linesOf(tandem).filter(({ message }) => message === about)

const startLogging = (...extraArgs: string[]): Promise<Tandem> =>
  startTandem({ cluster0: pair.source.uri, cluster1: pair.destination.uri, extraArgs })

it('when a commit step ends with an unexpected error, progress names the step, command, namespace, code and text, and the log has the stack', async () => {
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

  expect(logged(tandem, 'failed')).toMatchObject([
    {
      level: 'error',
      error: 'InternalError',
      errorDescription: failure?.errorDescription,
      during: 'syncing.finishing.awaiting',
      sync: 'committing.preparing',
      stack: expect.stringMatching(/MongoServerError[\s\S]+\n\s+at /),
    },
  ])
  expect(logged(tandem, 'retrying')).toEqual([])
  // The audit lines do not depend on the verbosity.
  expect(logged(tandem, 'audit').map(({ command, outcome }) => [command, outcome])).toEqual(
    ['start', 'commit'].flatMap((command) => [
      [command, 'received'],
      [command, 'accepted'],
    ]),
  )
})

it('the log has one line for each change of coordinator, ownership, barrier, copy, verification and takeover', async () => {
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
  await until('partitions of b', async () => expect(logged(b, 'partitions claimed')).not.toEqual([]))
  await things.createIndex({ x: 1 })
  await until('a barrier', async () => expect(logged(b, 'barrier passed')).toHaveLength(1))

  for (const message of ['lease taken', 'copy ended', 'verification began', 'verification pass ended'] as const) {
    expect(logged(a, message), message).toHaveLength(1)
  }
  expect(logged(a, 'collection copied')).toMatchObject([{ namespace: 'app.things', bytes: expect.any(Number) }])
  expect(logged(a, 'coordinator')).toMatchObject([{ coordinatorID: 'a', term: 1, isThisInstance: true }])
  expect(logged(b, 'coordinator')).toMatchObject([{ coordinatorID: 'a', term: 1, isThisInstance: false }])
  expect(logged(a, 'partitions given back')).not.toEqual([])
  const [reached] = logged(b, 'barrier reached')
  expect(reached).toMatchObject({ databases: ['app'], clusterTime: expect.stringMatching(/^\d+:\d+$/) })
  expect(logged(a, 'barrier led')).toMatchObject([{ clusterTime: reached?.['clusterTime'], databases: ['app'] }])

  await instances.kill9('a')
  await until('a takeover', async () => {
    expect(logged(b, 'partitions claimed').at(-1)).toMatchObject({ from: ['a'] })
  })
  expect(logged(b, 'instance evicted')).toMatchObject([{ level: 'warn', instance: 'a' }])
  expect(logged(b, 'coordinator').at(-1)).toMatchObject({ coordinatorID: 'b', term: 2, isThisInstance: true })
  await commit(b)
  expect(logged(b, 'verdict pass').at(-1)).toMatchObject({ differences: 0 })
  expect(logged(b, 'verdict')).toMatchObject([{ differences: 0 }])
  await until('the release of the lease', async () => expect(logged(b, 'lease given back')).toHaveLength(1))
})
