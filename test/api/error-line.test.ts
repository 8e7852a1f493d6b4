import { expect, test } from 'vitest'
import { errorLine } from '../../src/cli/error-line.ts'
import { errorText } from '../../src/dashboard/error-text.js'

/**
 * The command line and the dashboard show those details of an error that its description does not contain. The command line
 * also names the page of the documentation. The dashboard links to that page instead.
 */

const docs = 'docs/troubleshooting.md#x'

test.each<[what: string, error: Record<string, string>, onPage: string, inTerminal: string]>([
  [
    'each detail',
    {
      errorDescription: 'x',
      cluster: 'cluster1',
      codeName: 'Unauthorized',
      lastError: 'find: no',
      lost: 'nothing',
      docs,
    },
    'x (cluster1; Unauthorized; find: no; nothing is lost)',
    `x (cluster1; Unauthorized; find: no; nothing is lost; see ${docs})`,
  ],
  [
    'no detail twice',
    {
      errorDescription: 'cluster1 does not answer (gone). Nothing is lost.',
      cluster: 'cluster1',
      lastError: 'gone',
      lost: 'nothing',
      docs,
    },
    'cluster1 does not answer (gone). Nothing is lost.',
    `cluster1 does not answer (gone). Nothing is lost. (see ${docs})`,
  ],
  ['the description alone if there are no details', { errorDescription: 'not now' }, 'not now', 'not now'],
])('shows %s', (_what, error, onPage, inTerminal) => {
  expect(errorText(error)).toBe(onPage)
  expect(errorLine({ error: 'Name', ...error })).toBe(`Name: ${inTerminal}`)
})
