/** @import { AuditEntry } from './audit-cells.js' */
import { cellsOf, noteOf } from './audit-cells.js'
import { byId, showText } from './page.js'
import { Poll } from './poll.js'
import { Table } from './table.js'

/** Shows who sent which command. The page requests the entries only while the user has opened the list. */

const everyMS = 5_000
const rowsShown = 100

const table = new Table('audit', [
  { name: 'Time' },
  { name: 'Command' },
  { name: 'Instance' },
  { name: 'Sent by' },
  { name: 'Token' },
  { name: 'Outcome' },
])
const details = /** @type {HTMLDetailsElement} */ (byId('audit-details'))

/** @type {Poll<{ success: true, entries: AuditEntry[] }>} */
const poll = new Poll({
  path: () => '/api/v1/audit',
  isWanted: () => details.open,
  everyMS: () => everyMS,
  show: ({ entries }) => {
    const rows = entries.slice(0, rowsShown)
    table.show(rows.map((one, at) => ({ key: String(at), cells: cellsOf(one) })))
    showText('audit-note', noteOf(rows.length, entries.length))
  },
  fail: (problem) => showText('audit-note', problem),
})

export function watchAuditTrail() {
  details.addEventListener('toggle', () => void poll.refresh())
}
