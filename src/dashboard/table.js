/** @import { Cell } from './format.js' */
import { byId, create, setText } from './page.js'

/**
 * A table that keeps its row elements while their content changes, so that unchanged content is neither drawn nor
 * read aloud again.
 */

/**
 * @typedef {{ name: string, number?: boolean, bar?: (key: string) => string }} Column `bar` returns the label of a
 * bar
 */
/** @typedef {{ key: string, status?: string, cells: Cell[] }} Row */
/** @typedef {{ row: HTMLTableRowElement, cells: { text: HTMLElement, bar: HTMLProgressElement | null }[] }} Shown */

export class Table {
  #id
  #columns
  #body
  /** @type {Map<string, Shown>} */
  #shown = new Map()

  /**
   * @param {string} id of the table
   * @param {Column[]} columns the same columns as in the table head
   */
  constructor(id, columns) {
    this.#id = id
    this.#columns = columns
    this.#body = /** @type {HTMLElement} */ (byId(id).querySelector('tbody'))
    // In narrow windows the table is laid out as blocks, and some browsers then drop its table semantics. Explicit
    // roles keep them.
    for (const [selector, role] of [
      ['table', 'table'],
      ['thead, tbody', 'rowgroup'],
      ['tr', 'row'],
      ['th', 'columnheader'],
    ]) {
      for (const element of document.querySelectorAll(`#${id}:is(${selector}), #${id} :is(${selector})`)) {
        element.setAttribute('role', role ?? '')
      }
    }
  }

  /** @param {readonly Row[]} rows all rows, in order */
  show(rows) {
    byId(this.#id).hidden = rows.length === 0
    const keys = new Set(rows.map(({ key }) => key))
    for (const [key, { row }] of this.#shown) {
      if (keys.has(key)) continue
      row.remove()
      this.#shown.delete(key)
    }
    for (const [at, one] of rows.entries()) {
      const { row, cells } = this.#shown.get(one.key) ?? this.#add(one.key)
      for (const [index, { text, state, share }] of one.cells.entries()) {
        const cell = cells[index]
        if (!cell) continue
        setText(cell.text, text)
        if (state !== undefined) cell.text.dataset['state'] = state
        if (cell.bar) cell.bar.value = share ?? 0
      }
      if (one.status !== undefined) row.dataset['status'] = one.status
      const place = this.#body.children[at]
      if (place !== row) this.#body.insertBefore(row, place ?? null)
    }
  }

  /** @param {string} key */
  #add(key) {
    const row = create('tr', { attributes: { role: 'row' } })
    const cells = this.#columns.map(({ name, number, bar: label }, at) => {
      const className = number ? 'number' : ''
      const attributes = { 'data-label': name, role: at === 0 ? 'rowheader' : 'cell' }
      const cell = create(at === 0 ? 'th' : 'td', { className, attributes })
      const text = create('span')
      const bar = label ? create('progress', { attributes: { max: '1', 'aria-label': label(key) } }) : null
      cell.append(text, ...(bar ? [bar] : []))
      row.append(cell)
      return { text, bar }
    })
    const made = { row, cells }
    this.#shown.set(key, made)
    return made
  }
}
