/** @import { Cell } from './format.js' */
import { count } from './format.js'

/** The texts about the commands of the audit trail. */

/**
 * An entry of the answer of `GET /api/v1/audit`. It is written out, because the schema imports files that need Node's
 * types.
 * @typedef {{
 *   time: string, mongosyncID: string, command: string, remoteAddress: string | null,
 *   token: 'control' | 'read' | 'none' | null, sender?: string | null, outcome: string, error: string | null
 * }} AuditEntry
 */

const tokens = { control: 'control', read: 'read-only', none: 'none' }

/**
 * @param {AuditEntry} entry
 * @returns {Cell[]}
 */
export function cellsOf({ time, mongosyncID, command, remoteAddress, token, sender, outcome, error }) {
  const client = remoteAddress ?? 'not known'
  return [
    { text: time.replace(/^(\S+)T([\d:]+).*$/, '$1 $2 UTC') },
    { text: command },
    { text: mongosyncID },
    { text: sender === undefined ? client : `passed on by ${sender ?? 'another instance'}` },
    { text: token === null ? '–' : tokens[token] },
    { text: error === null ? outcome : `${outcome}: ${error}`, state: outcome === 'refused' ? 'FAILED' : '' },
  ]
}

/**
 * @param {number} shown
 * @param {number} all
 */
export function noteOf(shown, all) {
  if (all === 0) return 'No command has been recorded.'
  if (shown === all) return `${count(all)} ${all === 1 ? 'command' : 'commands'}, the newest first.`
  return `The newest ${count(shown)} of ${count(all)} commands; tandem audit lists all of them.`
}
