/** @import { CollectionsAnswer } from '../api/collections-schema.ts' */
/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Passes } from './collection-cells.js' */
import { cellsOf, isBehind, passesOf } from './collection-cells.js'
import { count } from './format.js'
import { byId, showText } from './page.js'
import { leadingProgress } from './phases.js'
import { Poll } from './poll.js'
import { Table } from './table.js'

/**
 * Shows one row for each collection, up to `rowsShown` at a time. The rows are requested every few seconds, and only while
 * the browser shows the dashboard.
 */

const everyMS = 5_000
/** The interval while rows are older than the progress of the sync. tandem stores their figures about once a second. */
const behindMS = 1_000
const rowsShown = 100

const table = new Table('collections', [
  { name: 'Collection' },
  { name: 'Copied', bar: (namespace) => `Share of ${namespace} that is copied` },
  { name: 'Documents', number: true },
  { name: 'Indexes' },
  { name: 'Verification' },
  { name: 'Mismatches', number: true },
])
const before = /** @type {HTMLButtonElement} */ (byId('collections-before'))
const next = /** @type {HTMLButtonElement} */ (byId('collections-next'))

let after = 0
/** @type {CollectionsAnswer['collections']} */
let rows = []
/** @type {Passes} */
let passes = { copied: false, verifying: false, verified: false }

/** @type {Poll<CollectionsAnswer>} */
const poll = new Poll({
  path: () => `/api/v1/collections?limit=${rowsShown}&after=${after}`,
  everyMS: () => (isBehind(rows, passes) ? behindMS : everyMS),
  show,
  fail: (problem) => showText('collections-note', problem),
})

export function watchCollections() {
  before.addEventListener('click', () => turn(-rowsShown))
  next.addEventListener('click', () => turn(rowsShown))
  void poll.refresh()
}

/**
 * Applies the progress of the whole sync. It arrives every second, so it is newer than the rows.
 * @param {Sample} sample
 */
export function showCollections(sample) {
  const now = passesOf(leadingProgress(sample))
  if (JSON.stringify(now) === JSON.stringify(passes)) return
  passes = now
  showRows()
  if (isBehind(rows, passes)) void poll.refresh()
}

function showRows() {
  table.show(rows.map((one) => ({ key: one.namespace, cells: cellsOf(one, passes) })))
}

/** @param {number} distance number of rows, negative to go back */
function turn(distance) {
  after = Math.max(0, after + distance)
  void poll.refresh()
}

/** @param {CollectionsAnswer} answer */
function show({ collections, total }) {
  rows = collections
  showRows()
  const last = after + collections.length
  showText('collections-note', noteOf(collections.length, after, total))
  byId('collections-pages').hidden = total <= rowsShown
  before.disabled = after === 0
  next.disabled = last >= total
  // Collections have been dropped, so there are no rows at this offset any more.
  if (collections.length === 0 && after > 0) turn(-rowsShown)
}

/**
 * @param {number} shown
 * @param {number} skipped number of rows before the first of this page
 * @param {number} total
 */
function noteOf(shown, skipped, total) {
  if (total === 0) return 'None yet.'
  const order = 'those with mismatches first, then those with the most data left to copy or verify'
  if (total <= rowsShown) return `${count(total)} in all, ${order}.`
  return `${count(skipped + 1)} to ${count(skipped + shown)} of ${count(total)}, ${order}.`
}
