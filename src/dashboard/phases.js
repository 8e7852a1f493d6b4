/** @import { Sample } from '../api/sample-schema.ts' */
import { byId, create } from './page.js'

/** @typedef {Sample['instances'][number]['progress']} Progress */
/** @typedef {{ name: string, status: 'done' | 'current' | 'ahead' }} Phase */

/**
 * Returns the progress that represents the sync. This is the progress of the coordinator, because the coordinator
 * verifies, or, without a live coordinator, the progress of the instance that serves the page.
 * @param {Sample} sample
 * @returns {Progress | null}
 */
export function leadingProgress({ instances, progress }) {
  return instances.find((row) => row.coordinator && row.status === 'alive')?.progress ?? progress
}

/**
 * @param {Progress | null} progress
 * @returns {Phase[]}
 */
export function phasesOf(progress) {
  const verifies = progress !== null && progress.verification !== null
  const names =
    progress?.state === 'REVERSING'
      ? ['Reversing', 'Following changes', 'Commit', 'Committed']
      : ['Copy', ...(verifies ? ['First verification'] : []), 'Following changes', 'Commit', 'Committed']
  const current = names.indexOf(currentPhase(progress))
  const statusOf = (/** @type {number} */ at) => (at < current ? 'done' : at === current ? 'current' : 'ahead')
  return names.map((name, at) => ({ name, status: current === -1 ? 'ahead' : statusOf(at) }))
}

/** @param {Progress | null} progress */
function currentPhase(progress) {
  if (!progress || progress.state === 'IDLE') return ''
  if (progress.state === 'REVERSING') return 'Reversing'
  if (progress.state === 'COMMITTED') return 'Committed'
  if (progress.info === 'waiting for commit to complete') return 'Commit'
  if (progress.info === 'collection copy') return 'Copy'
  const phase = progress.verification?.source.phase
  const verified = progress.canCommit || phase === undefined || phase === 'stream hashing'
  return verified ? 'Following changes' : 'First verification'
}

const inWords = { done: 'done', current: 'now', ahead: 'not yet' }

/** @param {Phase[]} phases */
export function showPhases(phases) {
  const list = byId('phases')
  const key = JSON.stringify(phases)
  if (list.dataset['shown'] === key) return
  list.dataset['shown'] = key
  list.replaceChildren(
    ...phases.map(({ name, status }) => {
      const item = create('li', {
        className: status,
        ...(status === 'current' && { attributes: { 'aria-current': 'step' } }),
      })
      item.append(create('span', { text: name }), create('span', { className: 'unseen', text: `, ${inWords[status]}` }))
      return item
    }),
  )
}
