import { expect, it } from 'vitest'
import { newEntry } from '../../src/domain/catalog.ts'
import { noRemap } from '../../src/domain/namespace-remap.ts'
import { refusalFor } from '../../src/session/converge-missing.ts'

/** A resume is refused while the commit under way cannot succeed. The refusal names a command that is accepted. */

const missing = [newEntry('app', { uuid: 'u', name: 'things' }, { options: [], indexes: [] }, 'copied')]

it.each([
  ['repair', /app\.things\. Send repair, which aborts the commit/],
  ['abort', /app\.things\. Send abort\. If the state is RUNNING then, send resync/],
] as const)('the refusal by an instance that accepts %s names that command', (accepted, text) => {
  expect(refusalFor(missing, accepted, { names: noRemap }).message).toMatch(text)
})
