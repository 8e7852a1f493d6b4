/** @import { MismatchesAnswer } from '../api/mismatches-schema.ts' */
/** @import { Sample } from '../api/sample-schema.ts' */
import { cellsOf, noteOf } from './mismatch-cells.js'
import { byId, showText } from './page.js'
import { Poll } from './poll.js'
import { Table } from './table.js'

/** Lists the differences while a live instance is FAILED with VerificationFailed. */

/** The list changes only with the next verdict. */
const everyMS = 30_000
const rowsShown = 100

const table = new Table('mismatches', [
  { name: 'Collection' },
  { name: 'Difference' },
  { name: 'Document or definition' },
  { name: 'Cause' },
])
const section = byId('mismatches-section')

/** @type {Poll<MismatchesAnswer>} */
const poll = new Poll({
  path: () => `/api/v1/verification/mismatches?limit=${rowsShown}`,
  isWanted: () => !section.hidden,
  everyMS: () => everyMS,
  show: ({ mismatches, total }) => {
    table.show(mismatches.map((one, at) => ({ key: String(at), cells: cellsOf(one) })))
    showText('mismatches-note', noteOf(mismatches.length, total))
  },
  fail: (problem) => showText('mismatches-note', problem),
})

/** @param {Sample} sample */
export function showMismatches({ instances }) {
  const hasFailed = instances.some(
    ({ status, progress }) => status === 'alive' && progress.failure?.error === 'VerificationFailed',
  )
  if (section.hidden !== hasFailed) return
  section.hidden = !hasFailed
  if (!hasFailed) return
  // The rows of an earlier verdict must not be mistaken for those of this one.
  table.show([])
  showText('mismatches-note', 'Loading …')
  void poll.refresh()
}
