/** @import { CollectionsAnswer } from '../api/collections-schema.ts' */
/** @import { FailureAnswer } from '../api/schemas.ts' */
/** @import { Cell } from './table.js' */
import { ask } from './access.js'
import { bytes, count, percent } from './format.js'
import { byId, showText } from './page.js'
import { Table } from './table.js'

/**
 * Shows one row for each collection, one page at a time. The page requests them every few seconds, and only while it
 * is visible.
 */

/** @typedef {CollectionsAnswer['collections'][number]} Row */

const everyMS = 5_000
/** A half-open connection never answers. */
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

export function watchCollections() {
  document.addEventListener('visibilitychange', () => void refresh())
  before.addEventListener('click', () => turn(-rowsShown))
  next.addEventListener('click', () => turn(rowsShown))
  void refresh()
}

/** @param {number} rows */
function turn(rows) {
  after = Math.max(0, after + rows)
  void refresh()
}

/** Sends one request at a time. The next one follows the answer, if the page is visible then. */
async function refresh() {
  clearTimeout(timer)
  if (document.visibilityState !== 'visible' || isRequesting) return
  isRequesting = true
  const asked = after
  try {
    const response = await ask(`/api/v1/collections?limit=${rowsShown}&after=${asked}`, {}, patienceMS)
    const answer = /** @type {CollectionsAnswer | FailureAnswer} */ (await response.json())
    if (answer.success) show(answer, asked)
    else showText('collections-note', `Not available: ${answer.errorDescription}`)
  } catch {
    showText('collections-note', 'Not available: tandem does not answer.')
  } finally {
    isRequesting = false
    timer = setTimeout(refresh, asked === after ? everyMS : 0)
  }
}

/**
 * @param {CollectionsAnswer} answer
 * @param {number} asked number of rows that were skipped
 */
function show({ collections, total }, asked) {
  table.show(collections.map((one) => ({ key: one.namespace, cells: cellsOf(one) })))
  const last = asked + collections.length
  showText('collections-note', noteOf(collections.length, asked, total))
  byId('collections-pages').hidden = total <= rowsShown
  before.disabled = asked === 0
  next.disabled = last >= total
  // Collections were dropped meanwhile, so this page no longer exists.
  if (collections.length === 0 && asked > 0) turn(-rowsShown)
}

/**
 * @param {number} shown
 * @param {number} asked
 * @param {number} total
 */
function noteOf(shown, asked, total) {
  if (total === 0) return 'None yet.'
  const order = 'those with mismatches first, then those with the most left'
  if (total <= rowsShown) return `${count(total)} in all, ${order}.`
  return `${count(asked + 1)} to ${count(asked + shown)} of ${count(total)}, ${order}.`
}

/**
 * @param {Row} one
 * @returns {Cell[]}
 */
function cellsOf({ namespace, copy, indexes, verification, mismatches }) {
  const { estimatedCopiedBytes: copied, estimatedTotalBytes: total } = copy
  const share = copy.ended ? 100 : Math.min(99.9, percent(copied, total))
  return [
    { text: namespace },
    {
      text: copy.ended
        ? `${bytes(total)}, all`
        : `${copy.converging ? 'converging, ' : ''}${bytes(copied)} of ${bytes(total)}`,
      share: share / 100,
    },
    { text: documentsOf(copy) },
    { text: indexesOf(indexes) },
    { text: verification ? verificationOf(verification) : 'off' },
    { text: mismatches === 0 ? '–' : count(mismatches), state: mismatches === 0 ? '' : 'FAILED' },
  ]
}

/** @param {Row['copy']} copy */
function documentsOf({ ended, copiedDocumentCount: copied, estimatedDocumentCount: all }) {
  return ended ? count(copied) : `${count(copied)} of ${count(all)}`
}

/** @param {Row['indexes']} indexes */
function indexesOf({ total, built, heldBack, missing }) {
  if (total === 0) return 'none besides _id'
  const more = [
    ...(heldBack > 0 ? [`${heldBack} held back until commit`] : []),
    ...(missing > 0 ? [`${missing} missing`] : []),
  ]
  return [`${built} of ${total} built`, ...more].join(', ')
}

/** @param {NonNullable<Row['verification']>} verification */
function verificationOf({ phase, hashedDocumentCount, hashedRanges, totalRanges }) {
  if (phase === 'not started') return 'not started'
  const compared = `${count(hashedDocumentCount)} compared`
  if (phase === 'stream hashing') return `${compared}, changes followed`
  return `${compared}, ${Math.floor(percent(hashedRanges, totalRanges))} % of the ranges`
}
