/** @import { ShownError } from './error-text.js' */

/** Links to the documentation, which the instance itself serves. */

/** @typedef {{ href: string, text: string }} Link */

const page = '/docs/troubleshooting.md'

/**
 * Parts of the texts of warnings, each with the heading that explains the warning. Warnings are recognised by their
 * texts, because they have no names.
 * @type {readonly (readonly [part: string, anchor: string])[]}
 */
export const warningAnchors = [
  ['no heartbeat for', 'a-lost-instance'],
  ['start left out enableUserWriteBlocking', 'start-left-out-enableuserwriteblocking'],
  ['this sync is reversible, but reverse will be refused', 'reverse-will-be-refused'],
  ['not synced: ', 'timeseriesskipped'],
  ['will no longer reach back to the position of this sync', 'shortoplogwindow'],
  ['these instances must stop their work', 'instances-that-others-wait-for'],
  ['a change of definitions waits for instance', 'instances-that-others-wait-for'],
  ['this instance is paused while other instances run', 'instances-that-others-wait-for'],
  ['waits for instances that have not received it yet', 'instances-that-others-wait-for'],
  ['this instance has not received the commit', 'a-commit-that-this-instance-has-not-received'],
  ['the first verification compares hashes', 'hashedverification'],
  ['the commit was aborted', 'the-commit-was-aborted'],
  ['the last commit was aborted', 'the-commit-was-aborted'],
  ['the rehearsal would have failed', 'the-commit-was-aborted'],
  ['could not be checked for late writes', 'writes-on-the-source-after-the-last-check'],
  ['the source was written after the last check', 'writes-on-the-source-after-the-last-check'],
  ['have no TLS', 'unencryptedconnection'],
  ['can impersonate that cluster', 'unverifiedconnection'],
]

/**
 * Returns the link to the entry that explains an error; null if the error names no entry.
 * @param {ShownError} error
 * @returns {Link | null}
 */
export function linkOfError({ error, docs }) {
  // Only a page of the documentation can be the target, whatever the answer contains.
  if (!docs || !/^docs\/[\w-]+\.md#[\w-]+$/.test(docs)) return null
  return { href: `/${docs}`, text: `What to do about ${error ?? 'this'}` }
}

/**
 * Returns the link for the reason why a sample lacks data.
 * @param {string | null} error name
 * @returns {Link | null}
 */
export function linkOfProblem(error) {
  return error === null ? null : linkOfError({ error, docs: `${page.slice(1)}#${error.toLowerCase()}` })
}

/**
 * @param {string} warning
 * @returns {Link}
 */
export function linkOfWarning(warning) {
  const [, anchor = 'warnings'] = warningAnchors.find(([part]) => warning.includes(part)) ?? []
  return { href: `${page}#${anchor}`, text: 'What to do about this warning' }
}

/** @type {Link} */
export const linkOfBackOff = { href: '/docs/tuning.md#loading-the-clusters-less', text: 'What backing off means' }
