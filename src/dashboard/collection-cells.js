/** @import { CollectionsAnswer } from '../api/collections-schema.ts' */
/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Cell } from './format.js' */
import { bytes, count, percent } from './format.js'

/**
 * The text of each collection's row. A row can be several seconds older than the progress of the whole sync, because
 * the row shows stored figures, the page requests it every few seconds, and tandem may answer from a cache. The
 * progress of the whole sync therefore takes precedence. Otherwise the page could show a completed verification and a
 * collection that seems not to be verified.
 */

/** @typedef {CollectionsAnswer['collections'][number]} Row */
/**
 * @typedef {{ copied: boolean, verifying: boolean, verified: boolean }} Passes `verifying` is true during the first
 * verification, and `verified` after it
 */

/** The values of `info` after the copy. */
const infoAfterCopy = ['change event application', 'waiting for commit to complete', 'commit completed']

/**
 * Returns how far the whole sync has come with its two passes over all collections, the copy and the first
 * verification.
 * @param {Sample['progress']} progress
 * @returns {Passes}
 */
export function passesOf(progress) {
  const phase = progress?.verification?.source.phase
  return {
    copied: infoAfterCopy.includes(progress?.info ?? ''),
    verifying: phase === 'initial hashing',
    verified: phase === 'stream hashing',
  }
}

/**
 * True if a row is older than the progress of the whole sync.
 * @param {readonly Row[]} rows
 * @param {Passes} passes
 */
export function isBehind(rows, passes) {
  return rows.some(
    ({ copy, verification }) =>
      (passes.copied && !copy.ended) ||
      (passes.verified && verification !== null && verification.phase !== 'stream hashing'),
  )
}

/**
 * @param {Row} one
 * @param {Passes} passes
 * @returns {Cell[]}
 */
export function cellsOf({ namespace, destinationNamespace, copy, indexes, verification, mismatches }, passes) {
  const { estimatedCopiedBytes: copied, estimatedTotalBytes: total } = copy
  const isCopied = copy.ended || passes.copied
  const share = isCopied ? 100 : Math.min(99.9, percent(copied, total))
  return [
    { text: destinationNamespace === undefined ? namespace : `${namespace} → ${destinationNamespace}` },
    {
      text: isCopied
        ? `${bytes(total)}, all`
        : `${copy.converging ? 'converging, ' : ''}${bytes(copied)} of ${bytes(total)}`,
      share: share / 100,
    },
    { text: documentsOf(copy, isCopied) },
    { text: indexesOf(indexes) },
    { text: verification ? verificationOf(verification, passes) : 'off' },
    { text: mismatches === 0 ? '–' : count(mismatches), state: mismatches === 0 ? '' : 'FAILED' },
  ]
}

/**
 * @param {Row['copy']} copy
 * @param {boolean} isCopied
 */
function documentsOf({ ended, copiedDocumentCount: copied, estimatedDocumentCount: all }, isCopied) {
  if (ended) return count(copied)
  return isCopied ? count(all) : `${count(copied)} of ${count(all)}`
}

/** @param {Row['indexes']} indexes */
function indexesOf({ total, built, heldBack, missing }) {
  if (total === 0) return 'none besides _id'
  const more = [
    ...(heldBack > 0 ? [`${heldBack} deferred until commit`] : []),
    ...(missing > 0 ? [`${missing} missing`] : []),
  ]
  return [`${built} of ${total} built`, ...more].join(', ')
}

/**
 * @param {NonNullable<Row['verification']>} verification
 * @param {Passes} passes
 */
function verificationOf({ phase, hashedDocumentCount, hashedRanges, totalRanges }, passes) {
  if (passes.verified && phase !== 'stream hashing') return 'compared, changes followed'
  if (phase === 'not started' && !passes.verifying) return 'not started'
  const compared = `${count(hashedDocumentCount)} compared`
  if (phase === 'stream hashing') return `${compared}, changes followed`
  return `${compared}, ${Math.floor(percent(hashedRanges, totalRanges))} % of the ranges`
}
