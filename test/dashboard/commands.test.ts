import { expect, test } from 'vitest'
import { commands, effect, obstacle } from '../../src/dashboard/commands.js'
import { History } from '../../src/dashboard/history.js'
import type { InstanceRow } from '../../src/domain/instances.ts'
import { instanceRow as row } from './instance-row.ts'

/** Tests decisions of the page's code without a browser. */

const side = {
  estimatedDocumentCount: 30_000,
  hashedDocumentCount: 12_000,
  lagTimeSeconds: 0,
  phase: 'initial hashing',
  scannedCollectionCount: 0,
  totalCollectionCount: 1,
}
const copying = { estimatedTotalBytes: 100, estimatedCopiedBytes: 31 }

test.each<[string, InstanceRow[], string | null]>([
  ['no instance runs', [], 'no sync has been started'],
  ['every instance is lost', [row('a', {}, 'lost'), row('b', {}, 'lost')], 'no instance of the sync is alive'],
  [
    'the copy is in progress',
    [
      row('a', { info: 'collection copy', collectionCopy: copying }),
      row('b', { info: 'collection copy', collectionCopy: copying }),
    ],
    'the copy has not ended (62 %)',
  ],
  [
    'the first verification is in progress',
    [row('a', { verification: { source: side, destination: side } })],
    'the first verification has not ended (12,000 of 30,000 documents)',
  ],
  ['one instance is paused', [row('a', { canCommit: true }), row('b', { state: 'PAUSED' })], 'instance b is PAUSED'],
  ['a commit is in progress', [row('a', { state: 'COMMITTING' })], 'the commit is under way'],
  ['the sync is committed', [row('a', { state: 'COMMITTED' })], 'the sync is committed'],
  ['event application is far behind', [row('a', { lagTimeSeconds: 59 })], 'the application of changes is 59 s behind'],
  ['all instances except a lost one can commit', [row('a', { canCommit: true }), row('b', {}, 'lost')], null],
])('while %s, the dashboard shows whether and why a commit is impossible', (_name, instances, expected) => {
  expect(obstacle('commit', instances)).toBe(expected)
})

test.each(commands)(
  'while every instance is lost, the reason against %s is not that no sync has been started',
  (command) => {
    expect(obstacle(command, [row('a', {}, 'lost')], 'a')).toBe('no instance of the sync is alive')
  },
)

test('abort is possible only for a commit that has not reached canWrite', () => {
  const info = 'waiting for commit to complete' as const
  for (const state of ['COMMITTING', 'FAILED'] as const)
    expect(obstacle('abort', [row('a', { state, info, canWrite: false }), row('b', {})])).toBeNull()
  for (const progress of [{}, { state: 'COMMITTING', canWrite: true }, { state: 'COMMITTED', canWrite: true }] as const)
    expect(obstacle('abort', [row('a', progress)])).toBe('no commit is under way')
})

test('repair is possible only on the page of the coordinator, after its verification has failed', () => {
  const failure = { error: 'VerificationFailed' as const, errorDescription: '1 document differs' }
  const failed = row('a', { state: 'FAILED', failure })
  expect(obstacle('repair', [failed, row('b', {})], 'a')).toBeNull()
  expect(obstacle('repair', [failed, row('b', {})], 'b')).toBe(
    'only the coordinator repairs: open the dashboard of instance a',
  )
  expect(obstacle('repair', [row('a', {}), row('b', { state: 'FAILED', failure })], 'b')).toBe(
    'the coordinator, a, is RUNNING',
  )
  expect(obstacle('repair', [row('a', { state: 'FAILED', failure }, 'lost'), row('b', {})], 'b')).toBe(
    'no live instance is the coordinator',
  )
})

test('the confirmation of a command names the number of instances', () => {
  const both = [row('a', { canCommit: true }), row('b', { canCommit: true }), row('c', {}, 'lost')]
  expect(effect('commit', both)).toMatch(/^Ends the migration on all 2 instances\./)
  const ready = row('a', { canCommit: true, commit: { estimatedSeconds: 1.4, waitingFor: [] } })
  expect(effect('commit', [ready])).toMatch(/takes about 2 s\. You can abort the commit until it is decided/)
  expect(effect('pause', both.slice(0, 1))).toMatch(/^Pauses the one instance/)
})

test('rates cover the last ten seconds and are unknown after a gap or after a restart that resets the counters', () => {
  const history = new History()
  history.merge([
    [1_000, 0, 100, 10, 1],
    [2_000, 50, 100, 30, 1],
    [20_000, 80, 100, 30, null],
    [21_000, 100, 100, 31, null],
    [22_000, 100, 100, 5, null],
  ])
  expect(history.bytesPerSecond().map(({ value }) => value)).toEqual([null, 50, null, null, 20, 10])
  expect(history.eventsPerSecond().map(({ value }) => value)).toEqual([null, 20, null, null, 1, null])
})
