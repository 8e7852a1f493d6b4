import { expect, it } from 'vitest'
import { newEntry } from '../../src/domain/catalog.ts'
import { refusalFor } from '../../src/session/converge-missing.ts'

/** A resume while a commit is under way that cannot succeed: the refusal names a command that is accepted. */

const missing = [newEntry('app', { uuid: 'u', name: 'things' }, { options: [], indexes: [] }, 'copied')]

it.each([
  ['repair', 'a', /app\.things\. Send repair, which aborts the commit/],
  ['abort', 'a', /app\.things\. Send abort\. If the state is RUNNING then, send resync/],
  [null, 'b', /Send abort to the coordinator, b, then resume to this instance/],
  [null, null, /Send abort to the coordinator, then resume to this instance/],
] as const)('of an instance that accepts %s, with the coordinator %s', (accepted, coordinatorID, text) => {
  expect(refusalFor(missing, accepted, { id: 'a', coordinatorID }).message).toMatch(text)
})
