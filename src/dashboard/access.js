import { byId, tell } from './page.js'

/**
 * Everything the page asks of tandem goes through here: with the token, where tandem wants one. The token is kept for this
 * tab alone (sessionStorage), and sent nowhere but to where the page came from.
 */

const kept = 'tandem token'
/** What waits for a token. @type {(() => void)[]} */
let waiting = []

const form = /** @type {HTMLFormElement} */ (byId('access'))
const field = /** @type {HTMLInputElement} */ (byId('token'))

form.addEventListener('submit', (event) => {
  event.preventDefault()
  const token = field.value.trim()
  // Nothing else can stand in a header.
  if (!/^[!-~]+$/.test(token)) return tell('access-note', 'A token has printable characters without spaces.')
  sessionStorage.setItem(kept, token)
  field.value = ''
  form.hidden = true
  delete document.body.dataset['access']
  const ready = waiting
  waiting = []
  for (const go of ready) go()
})

/**
 * As fetch does; where tandem wants a token, once it has got the right one.
 * @param {string} path
 * @param {RequestInit} [init]
 * @param {number} [patienceMS] for each try; 0: as long as it takes
 * @returns {Promise<Response>}
 */
export async function ask(path, init = {}, patienceMS = 0) {
  for (;;) {
    const token = sessionStorage.getItem(kept)
    const headers = token === null ? {} : { Authorization: `Bearer ${token}` }
    // Not over all of it: the token may be long in coming.
    const signal = patienceMS > 0 ? { signal: AbortSignal.timeout(patienceMS) } : {}
    const response = await fetch(path, { ...init, ...signal, headers })
    if (response.status !== 401) return response
    // Another question may have got another token meanwhile.
    if (sessionStorage.getItem(kept) === token) await askForToken(token !== null)
  }
}

/** The token that is kept only reads. It stays in use until there is another one; the command is for the user to send again. */
export function askForControlToken() {
  if (!form.hidden) return
  tell('access-note', 'That token only reads. To send a command, give the token for commands first.')
  form.hidden = false
  field.focus()
}

/**
 * Several questions wait for one answer.
 * @param {boolean} wasWrong
 * @returns {Promise<void>}
 */
function askForToken(wasWrong) {
  if (form.hidden) {
    sessionStorage.removeItem(kept)
    tell('access-note', wasWrong ? 'That is not the token of this instance.' : 'This instance asks for its token.')
    form.hidden = false
    document.body.dataset['access'] = 'asked'
    if (document.activeElement === document.body) field.focus()
  }
  return new Promise((resolve) => waiting.push(resolve))
}
