/** @import { Sample } from '../api/sample-schema.ts' */
import { bytes, count, duration } from './format.js'
import { byId, create, setText, tell } from './page.js'

/** A row for each instance. */

/** @typedef {Sample['instances'][number]} Row */

const columns = ['Instance', 'Role', 'Status', 'State', 'Copied', 'Share of the copy', 'Lag', 'Events', 'Partitions']
const numbers = new Set(['Copied', 'Lag', 'Events', 'Partitions'])

/** @type {Map<string, { row: HTMLTableRowElement, cells: HTMLElement[], bar: HTMLProgressElement }>} */
const shown = new Map()

// Narrow windows lay the table out as blocks, which takes its meaning from it in some browsers: so it is said.
for (const [selector, role] of [
  ['table', 'table'],
  ['thead, tbody', 'rowgroup'],
  ['tr', 'row'],
  ['th', 'columnheader'],
]) {
  for (const element of document.querySelectorAll(`#instances:is(${selector}), #instances :is(${selector})`)) {
    element.setAttribute('role', role ?? '')
  }
}

/** @param {Sample} sample */
export function showInstances({ instances, self }) {
  byId('instances').hidden = instances.length === 0
  byId('no-instances').hidden = instances.length > 0
  tell('no-instances', 'None takes part in a sync yet.')
  for (const [id, { row }] of shown) {
    if (instances.some(({ mongosyncID }) => mongosyncID === id)) continue
    row.remove()
    shown.delete(id)
  }
  for (const [at, one] of instances.entries()) {
    const { row, cells, bar } = shown.get(one.mongosyncID) ?? addRow(one.mongosyncID)
    const texts = textsOf(one, self)
    for (const [index, cell] of cells.entries()) setText(cell, texts[index] ?? '')
    row.dataset['status'] = one.status
    cells[3]?.setAttribute('data-state', one.progress.state)
    const copy = one.progress.collectionCopy
    bar.value = copy && copy.estimatedTotalBytes > 1 ? copy.estimatedCopiedBytes / copy.estimatedTotalBytes : 0
    const place = byId('rows').children[at]
    if (place !== row) byId('rows').insertBefore(row, place ?? null)
  }
  const teller = self === null ? 'this instance' : `instance ${self}`
  tell('teller', `Told by ${teller}, which commands on this page go through.`)
}

/**
 * @param {Row} one
 * @param {string | null} self
 * @returns {string[]}
 */
function textsOf({ mongosyncID, coordinator, status, lastSeenSeconds, partitions, progress }, self) {
  const copy = progress.collectionCopy
  const begun = copy !== null && copy.estimatedTotalBytes > 1
  return [
    mongosyncID === self ? `${mongosyncID} (this one)` : mongosyncID,
    coordinator ? 'coordinator' : '–',
    status === 'alive' ? 'alive' : `lost, ${duration(lastSeenSeconds)}`,
    progress.state,
    begun ? bytes(copy.estimatedCopiedBytes) : '–',
    begun ? `${((copy.estimatedCopiedBytes * 100) / copy.estimatedTotalBytes).toFixed(1)} %` : '–',
    progress.lagTimeSeconds === null ? '–' : duration(progress.lagTimeSeconds),
    progress.totalEventsApplied === null ? '–' : count(progress.totalEventsApplied),
    String(partitions.length),
  ]
}

/** @param {string} id mongosyncID */
function addRow(id) {
  const row = create('tr', { attributes: { role: 'row' } })
  const label = `Share of the copy that instance ${id} made`
  const bar = create('progress', { attributes: { max: '1', 'aria-label': label } })
  const cells = columns.map((name, at) => {
    const className = numbers.has(name) ? 'number' : ''
    const attributes = { 'data-label': name, role: at === 0 ? 'rowheader' : 'cell' }
    const cell = create(at === 0 ? 'th' : 'td', { className, attributes })
    const text = create('span')
    cell.append(text)
    if (name === 'Share of the copy') cell.append(bar)
    row.append(cell)
    return text
  })
  const made = { row, cells, bar }
  shown.set(id, made)
  return made
}
