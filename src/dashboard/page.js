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
 * @typedef {{ text: string, className: string, link?: { href: string, text: string } | null }} Entry `link` follows the
 * text
 */

/**
 * Shows a list of texts; rebuilds it only if it has changed.
 * @param {HTMLElement} list
 * @param {Entry[]} entries
 */
export function setList(list, entries) {
  const key = JSON.stringify(entries)
  if (list.dataset['shown'] === key) return
  list.dataset['shown'] = key
  list.replaceChildren(
    ...entries.map(({ text, className, link }) => {
      const item = create('li', { text, className })
      if (link) item.append(' ', create('a', { text: link.text, attributes: { href: link.href } }))
      return item
    }),
  )
}
