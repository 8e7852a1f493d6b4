/** @import { MismatchesAnswer } from '../api/mismatches-schema.ts' */
/** @import { Cell } from './format.js' */
import { count } from './format.js'

/** The texts about the differences of a verdict. */

/** @typedef {MismatchesAnswer['mismatches'][number]} Mismatch */

/** An `_id` may have thousands of characters. */
const shownMax = 200

const kinds = {
  missing: 'document missing on the destination',
  extra: 'document only on the destination',
  content: 'document differs',
  index: 'index differs',
  option: 'option differs',
  collection: 'collection differs',
}
const causes = { sync: 'the sync lost a change', foreignWrite: 'a write on the destination' }

/**
 * @param {Mismatch} mismatch
 * @returns {Cell[]}
 */
export function cellsOf(mismatch) {
  const { namespace, destinationNamespace, kind, by } = mismatch
  return [
    { text: destinationNamespace === undefined ? namespace : `${namespace} → ${destinationNamespace}` },
    { text: kinds[kind] },
    { text: placeOf(mismatch) },
    { text: by ? causes[by] : 'not known' },
  ]
}

/** @param {Mismatch} mismatch */
function placeOf({ id, field }) {
  const parts = [...(id === undefined ? [] : [`_id ${JSON.stringify(id)}`]), ...(field === undefined ? [] : [field])]
  const text = parts.map((part) => (part.length > shownMax ? `${part.slice(0, shownMax)}…` : part)).join(', ')
  return text === '' ? '–' : text
}

/**
 * @param {number} shown
 * @param {number} total
 */
export function noteOf(shown, total) {
  if (total === 0) return 'No difference is stored.'
  const listed = shown < total ? `The first ${count(shown)} of ${count(total)} differences` : `${count(total)}`
  const are =
    shown < total ? 'are shown; tandem mismatches lists up to a thousand' : total === 1 ? 'difference' : 'differences'
  return `${listed} ${are}, as of the last comparison. A repair does not shorten this list; the next commit compares again.`
}
