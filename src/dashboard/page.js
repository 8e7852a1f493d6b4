/** Helpers for the page's elements. All external data is inserted as text, never as markup. */

/**
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id)
  if (!found) throw new Error(`the page has no #${id}`)
  return found
}

/**
 * Sets a text only if it differs, so that unchanged elements are neither drawn nor read aloud again.
 * @param {Element} element
 * @param {string} text
 */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text
}

/**
 * @param {string} id
 * @param {string} text
 */
export function showText(id, text) {
  setText(byId(id), text)
}

/**
 * @template {keyof HTMLElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {{ className?: string, text?: string, attributes?: Record<string, string> }} [options]
 * @returns {HTMLElementTagNameMap[Tag]}
 */
export function create(tag, { className, text, attributes = {} } = {}) {
  const made = document.createElement(tag)
  if (className) made.className = className
  if (text !== undefined) made.textContent = text
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  return made
}

/**
 * @template {keyof SVGElementTagNameMap} Tag
 * @param {Tag} tag
 * @param {Record<string, string>} [attributes]
 * @returns {SVGElementTagNameMap[Tag]}
 */
export function createSvg(tag, attributes = {}) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag)
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value)
  return made
}

/**
 * @typedef {{ text: string, className: string, key?: string, link?: { href: string, text: string } | null }} Entry
 * `link` follows the text; `key` identifies the entry while its text changes (default: the text)
 */
/** @typedef {{ item: HTMLElement, text: Text, anchor: HTMLAnchorElement | null }} ShownEntry */

/** @type {WeakMap<HTMLElement, Map<string, ShownEntry>>} */
const shownLists = new WeakMap()

/**
 * Shows a list of texts. The elements of an entry are kept while only its text changes, because a new link would lose
 * the focus, and a click that has begun on the former one.
 * @param {HTMLElement} list
 * @param {Entry[]} entries
 */
export function setList(list, entries) {
  const shown = shownLists.get(list) ?? new Map()
  shownLists.set(list, shown)
  const keys = keysOf(entries)
  for (const [key, { item }] of shown) {
    if (keys.includes(key)) continue
    item.remove()
    shown.delete(key)
  }
  for (const [at, entry] of entries.entries()) {
    const key = keys[at] ?? ''
    const one = shown.get(key) ?? newEntry()
    shown.set(key, one)
    update(one, entry)
    const place = list.children[at]
    if (place !== one.item) list.insertBefore(one.item, place ?? null)
  }
}

/**
 * Returns a different key for each entry, even if two entries have the same text.
 * @param {Entry[]} entries
 */
function keysOf(entries) {
  /** @type {Map<string, number>} */
  const seen = new Map()
  return entries.map(({ key, text }) => {
    const wanted = key ?? text
    const before = seen.get(wanted) ?? 0
    seen.set(wanted, before + 1)
    return `${before} ${wanted}`
  })
}

/** @returns {ShownEntry} */
function newEntry() {
  const [item, text] = [create('li'), document.createTextNode('')]
  item.append(text)
  return { item, text, anchor: null }
}

/**
 * @param {ShownEntry} one
 * @param {Entry} entry
 */
function update(one, { text, className, link }) {
  if (one.text.data !== text) one.text.data = text
  if (one.item.className !== className) one.item.className = className
  if (!link) {
    if (one.anchor) one.item.replaceChildren(one.text)
    one.anchor = null
    return
  }
  if (!one.anchor) {
    // The link opens a new tab. In this tab it would replace the live page and the answer to a command.
    one.anchor = create('a', { attributes: { target: '_blank', rel: 'noopener' } })
    one.item.append(' ', one.anchor)
  }
  if (one.anchor.getAttribute('href') !== link.href) one.anchor.setAttribute('href', link.href)
  setText(one.anchor, `${link.text} (new tab)`)
}
