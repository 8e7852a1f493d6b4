/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Cell } from './format.js' */
import { bytes, count, duration } from './format.js'
import { limitsOf } from './limits.js'
import { byId, showText } from './page.js'
import { Table } from './table.js'

/** Shows one row for each instance. */

/** @typedef {Sample['instances'][number]} Row */

const table = new Table('instances', [
  { name: 'Instance' },
  { name: 'Role' },
  { name: 'Status' },
  { name: 'State' },
  { name: 'Copied', number: true },
  { name: 'Share of the copy', bar: (id) => `Share of the copy that instance ${id} made` },
  { name: 'Lag', number: true },
  { name: 'Events', number: true },
  { name: 'Partitions', number: true },
  { name: 'Limits' },
])

/** @param {Sample} sample */
export function showInstances({ instances, self }) {
  byId('no-instances').hidden = instances.length > 0
  showText('no-instances', 'No instance takes part in a sync yet.')
  table.show(instances.map((one) => ({ key: one.mongosyncID, status: one.status, cells: cellsOf(one, self) })))
  const server = self === null ? 'this instance' : `instance ${self}`
  showText('served-by', `Served by ${server}, which also sends the commands of this page.`)
}

/**
 * @param {Row} one
 * @param {string | null} self
 * @returns {Cell[]}
 */
function cellsOf({ mongosyncID, coordinator, status, lastSeenSeconds, partitions, progress }, self) {
  const copy = progress.collectionCopy
  const hasBegun = copy !== null && copy.estimatedTotalBytes > 1
  const share = hasBegun ? copy.estimatedCopiedBytes / copy.estimatedTotalBytes : 0
  return [
    { text: mongosyncID === self ? `${mongosyncID} (this one)` : mongosyncID },
    { text: coordinator ? 'coordinator' : '–' },
    { text: status === 'alive' ? 'alive' : `lost, ${duration(lastSeenSeconds)}` },
    { text: progress.state, state: progress.state },
    { text: hasBegun ? bytes(copy.estimatedCopiedBytes) : '–' },
    { text: hasBegun ? `${(share * 100).toFixed(1)} %` : '–', share },
    { text: progress.lagTimeSeconds === null ? '–' : duration(progress.lagTimeSeconds) },
    { text: progress.totalEventsApplied === null ? '–' : count(progress.totalEventsApplied) },
    { text: String(partitions.length) },
    { text: limitsOf(progress.limits) },
  ]
}
