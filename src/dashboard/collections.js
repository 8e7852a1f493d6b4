/** @import { CollectionsAnswer } from '../api/collections-schema.ts' */
/** @import { FailureAnswer } from '../api/schemas.ts' */
/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Passes } from './collection-cells.js' */
import { ask } from './access.js'
import { cellsOf, isBehind, passesOf } from './collection-cells.js'
import { errorText } from './error-text.js'
import { count } from './format.js'
import { byId, showText } from './page.js'
import { leadingProgress } from './phases.js'
import { Table } from './table.js'

/**
 * Shows one row for each collection, one page at a time. The page requests them every few seconds, and only while it
 * is visible.
 */

const everyMS = 5_000
/** The interval while rows are older than the progress of the sync. tandem stores their figures about once a second. */
const behindMS = 1_000
/** Timeout for one request, because a half-open connection never answers. */
const patienceMS = 30_000
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
let timer = 0
let isRequesting = false
/** @type {CollectionsAnswer['collections']} */
let rows = []
/** @type {Passes} */
let passes = { copied: false, verifying: false, verified: false }

export function watchCollections() {
  document.addEventListener('visibilitychange', () => void refresh())
  before.addEventListener('click', () => turn(-rowsShown))
  next.addEventListener('click', () => turn(rowsShown))
  void refresh()
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
  if (isBehind(rows, passes)) void refresh()
}

function showRows() {
  table.show(rows.map((one) => ({ key: one.namespace, cells: cellsOf(one, passes) })))
}

/** @param {number} distance number of rows, negative to go back */
function turn(distance) {
  after = Math.max(0, after + distance)
  void refresh()
}

/** Requests the rows, one request at a time, and schedules the next request. Sends none while the page is hidden. */
async function refresh() {
  clearTimeout(timer)
  if (document.visibilityState !== 'visible' || isRequesting) return
  isRequesting = true
  const skipped = after
  try {
    const response = await ask(`/api/v1/collections?limit=${rowsShown}&after=${skipped}`, {}, patienceMS)
    const answer = /** @type {CollectionsAnswer | FailureAnswer} */ (await response.json())
    if (answer.success) show(answer, skipped)
    else showText('collections-note', `Not available: ${errorText(answer)}`)
  } catch {
    showText('collections-note', 'Not available: tandem does not answer.')
  } finally {
    isRequesting = false
    const intervalMS = isBehind(rows, passes) ? behindMS : everyMS
    timer = setTimeout(refresh, skipped === after ? intervalMS : 0)
  }
}

/**
 * @param {CollectionsAnswer} answer
 * @param {number} skipped number of rows before the first of this page
 */
function show({ collections, total }, skipped) {
  rows = collections
  showRows()
  const last = skipped + collections.length
  showText('collections-note', noteOf(collections.length, skipped, total))
  byId('collections-pages').hidden = total <= rowsShown
  before.disabled = skipped === 0
  next.disabled = last >= total
  // Collections were dropped meanwhile, so this page of rows no longer exists.
  if (collections.length === 0 && skipped > 0) turn(-rowsShown)
}

/**
 * @param {number} shown
 * @param {number} skipped
 * @param {number} total
 */
function noteOf(shown, skipped, total) {
  if (total === 0) return 'None yet.'
  const order = 'those with mismatches first, then those with the most data left to copy or verify'
  if (total <= rowsShown) return `${count(total)} in all, ${order}.`
  return `${count(skipped + 1)} to ${count(skipped + shown)} of ${count(total)}, ${order}.`
}
