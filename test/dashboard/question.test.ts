import { expect, test } from 'vitest'
import { askedOf, outdated } from '../../src/dashboard/question.js'
import type { InstanceRow } from '../../src/domain/instances.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { instanceRow } from './instance-row.ts'

/** The dashboard sends a command only while the text of its confirmation is still correct. */

const row = (id: string, progress: Partial<Progress> = {}, status?: InstanceRow['status']): InstanceRow =>
  instanceRow(id, { canCommit: true, ...progress }, status)
const both = [row('a'), row('b')]

test.each<[string, 'pause' | 'resume' | 'commit', InstanceRow[], InstanceRow[], string | null]>([
  ['nothing has changed', 'commit', both, [row('b'), row('a')], null],
  ['only the lag and the oplog have changed', 'commit', both, [row('a', { lagTimeSeconds: 3 }), row('b')], null],
  ['the oplog shrinks', 'pause', both, [row('a', { estimatedOplogTimeRemaining: '2h' }), row('b')], null],
  ['the command would be refused', 'commit', both, [row('a', { state: 'PAUSED' }), row('b')], 'instance a is PAUSED'],
  ['an instance is lost', 'commit', both, [row('a'), row('b', {}, 'lost')], 'it would now go to a, not to a and b'],
  [
    'an instance has failed',
    'resume',
    [row('a', { state: 'PAUSED' })],
    [row('a', { state: 'FAILED' })],
    'its effect has changed since the confirmation was shown',
  ],
  [
    'the direction has changed',
    'commit',
    both,
    [row('a', { directionMapping: { Source: 'cluster1: x', Destination: 'cluster0: y' } }), row('b')],
    'its effect has changed since the confirmation was shown',
  ],
])(
  'when %s, the confirmation of %s either stays or is withdrawn with a reason',
  (_name, command, shown, now, expected) => {
    expect(outdated(askedOf(command, shown, 'a'), now, 'a')).toBe(expected)
  },
)

test('a repair goes only to the instance of the page', () => {
  expect(askedOf('repair', both, 'b').receivers).toEqual(['b'])
})
