import { expect, test } from 'vitest'
import type { AuditAnswer } from '../../src/api/audit-schema.ts'
import { cellsOf, noteOf } from '../../src/dashboard/audit-cells.js'

/** Tests the rows of the audit trail on the dashboard. */

type AuditEntry = AuditAnswer['entries'][number]
const entry: AuditEntry = {
  time: '2026-01-02T03:04:05.678Z',
  mongosyncID: 'a',
  command: 'all/commit',
  remoteAddress: '10.0.0.7',
  token: 'control',
  outcome: 'accepted',
  error: null,
}
const textsOf = (one: AuditEntry): string[] => cellsOf(one).map(({ text }) => text)

test('an entry shows the time, the command, the instance, the sender and the outcome', () => {
  expect(textsOf(entry)).toEqual(['2026-01-02 03:04:05 UTC', 'all/commit', 'a', '10.0.0.7', 'control', 'accepted'])
  const refused: AuditEntry = {
    ...entry,
    token: 'none',
    remoteAddress: null,
    outcome: 'refused',
    error: 'Unauthorized',
  }
  expect(textsOf(refused).slice(3)).toEqual(['not known', 'none', 'refused: Unauthorized'])
  const passedOn: AuditEntry = { ...entry, command: 'commit', token: null, sender: 'b' }
  expect(textsOf(passedOn).slice(3)).toEqual(['passed on by b', '–', 'accepted'])
})

test('the note above the rows says how many entries there are', () => {
  expect(noteOf(0, 0)).toBe('No command has been recorded.')
  expect(noteOf(1, 1)).toBe('1 command, the newest first.')
  expect(noteOf(100, 999)).toBe('The newest 100 of 999 commands; tandem audit lists all of them.')
})
