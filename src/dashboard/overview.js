/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Link } from './docs-link.js' */
/** @import { Progress } from './phases.js' */
import { linkOfBackOff, linkOfError, linkOfProblem, linkOfWarning } from './docs-link.js'
import { errorText } from './error-text.js'
import { bytes, count, duration, percent } from './format.js'
import { backOffOf } from './limits.js'
import { byId, setList, setText, showText } from './page.js'
import { leadingProgress } from './phases.js'

/** Shows state, notices and figures of the whole sync. */

/** In order of precedence: the headline shows the first of these states that any live instance has. */
const states = /** @type {const} */ (['FAILED', 'PAUSED', 'REVERSING', 'COMMITTING', 'RUNNING', 'COMMITTED', 'IDLE'])

/**
 * @param {Sample} sample
 * @returns {string}
 */
export function stateOf({ instances, progress }) {
  const living = instances.filter(({ status }) => status === 'alive').map((row) => row.progress.state)
  const all = living.length > 0 ? living : progress ? [progress.state] : []
  return states.find((state) => all.includes(state)) ?? 'CONNECTING'
}

/** @param {Sample} sample */
export function showState(sample) {
  const leading = leadingProgress(sample)
  const state = stateOf(sample)
  const badge = byId('state')
  setText(badge, state)
  badge.dataset['state'] = state
  showText('info', infoOf(sample, leading))
  const mapping = leading?.directionMapping
  showText('direction', mapping ? `${mapping.Source}  →  ${mapping.Destination}` : '')
  document.title = mapping ? `${state} · tandem` : 'tandem'
  const notices = noticesOf(sample)
  const list = byId('notices')
  list.hidden = notices.length === 0
  setList(list, notices)
}

/**
 * @param {Sample} sample
 * @param {Progress | null} leading
 */
function infoOf({ instances, problem }, leading) {
  if (!leading) return 'The instance is not connected to its clusters yet.'
  if (leading.state === 'IDLE' && problem === null) {
    return 'No sync has been started. Begin with: tandem start --source cluster0 --destination cluster1'
  }
  const living = instances.filter(({ status }) => status === 'alive')
  const differ = new Set(living.map(({ progress }) => progress.state)).size > 1
  const each = living.map(({ mongosyncID, progress }) => `${mongosyncID} ${progress.state}`).join(', ')
  return differ ? each : (leading.info ?? '')
}

/**
 * Lists failures, retries, back-offs and warnings. A notice that several instances report is listed once.
 * @param {Sample} sample
 */
function noticesOf({ instances, progress, problem, problemError }) {
  /** @type {Map<string, { key: string, className: string, text: string, link: Link | null, by: string[] }>} */
  const notices = new Map()
  /** @type {(className: string, text: string, by: string, link: Link | null, key?: string) => void} */
  const say = (className, text, by, link, key) => {
    const known = notices.get(key ?? text)
    if (known) known.by.push(by)
    else notices.set(key ?? text, { key: key ?? withoutFigures(text), className, text, link, by: [by] })
  }
  const warn = (/** @type {string} */ text, /** @type {string} */ by) => say('warning', text, by, linkOfWarning(text))
  if (problem !== null) say('warning', problem, '', linkOfProblem(problemError))
  const rows = instances.map((row) => ({ id: row.mongosyncID, of: row.progress, lost: row.status === 'lost', row }))
  const all = rows.length > 0 ? rows : progress ? [{ id: '', of: progress, lost: false, row: null }] : []
  for (const { id, of, lost, row } of all) {
    if (lost && row) {
      const text = `lost: no heartbeat for ${duration(row.lastSeenSeconds)}`
      say('warning', text, id, linkOfWarning(text), `lost ${id}`)
    } else {
      const { failure, retrying, limits } = of
      const backOff = backOffOf(limits)
      if (failure) say('failure', `${failure.error}: ${errorText(failure)}`, id, linkOfError(failure))
      if (retrying) say('retrying', `retrying since ${retrying.since}: ${retrying.what}`, id, null, `retrying ${id}`)
      if (backOff) say('retrying', backOff, id, linkOfBackOff, `backing off ${id}`)
      for (const warning of of.warnings ?? []) warn(warning, id)
    }
  }
  return [...notices.values()].map(({ key, className, text, link, by }) => {
    const ids = by.filter((id) => id !== '')
    const prefix = ids.length > 0 && (rows.length > 1 || ids.length > 1) ? `${ids.join(', ')}: ` : ''
    return { text: `${prefix}${text}`, className, link, key }
  })
}

/**
 * Returns the same key for a text whose figures change from one sample to the next.
 * @param {string} text
 */
function withoutFigures(text) {
  return text.replaceAll(/[\d.,]+/g, '#')
}

/**
 * @param {Sample} sample
 * @param {{ bytes: number | null, events: number | null }} rates per second
 */
export function showFigures(sample, rates) {
  const { totals, instances } = sample
  const leading = leadingProgress(sample)
  showCopy(totals, leading, rates.bytes)
  showVerification(leading)
  const perSecond = rates.events === null ? '' : ` (${count(rates.events)}/s)`
  showText('events', instances.length === 0 ? '–' : `${count(totals.totalEventsApplied)}${perSecond}`)
  const left = instances.find(({ progress }) => progress.estimatedOplogTimeRemaining)
  showText('oplog', left?.progress.estimatedOplogTimeRemaining ?? '–')
  showText('indexes', indexesOf(leading))
  const living = instances.filter(({ status }) => status === 'alive')
  const ready = living.filter(({ progress }) => progress.canCommit).length
  showText('can-commit', living.length === 0 ? '–' : ready === living.length ? 'yes' : 'no')
  showText('can-write', leading?.canWrite === true ? 'allowed' : leading?.canWrite === false ? 'not allowed' : '–')
}

/** @param {Progress | null} leading */
function indexesOf(leading) {
  if (!leading?.indexBuilding) return '–'
  const { indexesBuilt, totalIndexesToBuild, collectionsFinished, collectionsTotal } = leading.indexBuilding
  return (
    `${count(indexesBuilt)} of ${count(totalIndexesToBuild)} ` +
    `(${count(collectionsFinished)} of ${count(collectionsTotal)} ${collectionsTotal === 1 ? 'collection' : 'collections'})`
  )
}

/**
 * @param {Sample['totals']} totals
 * @param {Progress | null} leading
 * @param {number | null} rate bytes per second
 */
function showCopy({ estimatedCopiedBytes: copied, estimatedTotalBytes: total, percent: share }, leading, rate) {
  const bar = /** @type {HTMLProgressElement} */ (byId('copy-bar'))
  bar.value = share
  // Before the copy, progress reports 0 of 1.
  const hasBegun = total > 1
  showText('copy-share', hasBegun ? `${share.toFixed(2)} %` : '–')
  const copying = leading?.info === 'collection copy'
  const left = rate && total > copied ? [`${duration((total - copied) / rate)} left`] : []
  const rates = copying && rate !== null ? [`${bytes(rate)}/s`, ...left] : []
  const converging = leading?.convergingCollections ?? 0
  const existing =
    converging > 0 ? [`${count(converging)} ${converging === 1 ? 'collection' : 'collections'} converging`] : []
  const details = [`${bytes(copied)} of ${bytes(total)}`, ...rates, ...existing]
  showText('copy-detail', hasBegun ? details.join(' · ') : 'not begun')
}

/** @param {Progress | null} leading */
function showVerification(leading) {
  const side = leading?.verification?.source
  byId('verification').hidden = leading !== null && leading.state !== 'IDLE' && !side
  const hashed = side?.hashedDocumentCount ?? 0
  const all = side?.estimatedDocumentCount ?? 0
  const ended = side?.phase === 'stream hashing'
  const hasBegun = side !== undefined && side.phase !== 'not started'
  const share = ended ? 100 : percent(hashed, all)
  const bar = /** @type {HTMLProgressElement} */ (byId('verification-bar'))
  bar.value = hasBegun ? share : 0
  showText('verification-share', hasBegun ? `${share.toFixed(1)} %` : '–')
  const documents = `${count(hashed)} of ${count(all)} documents`
  showText('verification-detail', hasBegun ? `${side.phase} · ${documents}` : 'not begun')
}
