import { byId, showText } from './page.js'

/**
 * Sends all requests of the page, with the token if tandem requires one. The token is kept for this tab only
 * (sessionStorage) and sent only to the page's own origin.
 */

const storageKey = 'tandem token'
/** Requests that wait for a token. @type {(() => void)[]} */
let waiting = []

/** True if the current token is the read-only one. */
let isReadOnly = false
/** @type {(isReadOnly: boolean) => void} */
let onAccess = () => {}

const form = /** @type {HTMLFormElement} */ (byId('access'))
const field = /** @type {HTMLInputElement} */ (byId('token'))

form.addEventListener('submit', (event) => {
  event.preventDefault()
  const token = field.value.trim()
  // A header cannot contain other characters.
  if (!/^[!-~]+$/.test(token))
    return showText('access-note', 'A token consists of printable characters without spaces.')
  sessionStorage.setItem(storageKey, token)
  field.value = ''
  form.hidden = true
  delete document.body.dataset['access']
  const ready = waiting
  waiting = []
  for (const proceed of ready) proceed()
  // The answer says what the new token allows. A stream that is open continues with the old token.
  if (ready.length === 0) void ask('/api/v1/progress', { method: 'HEAD' }).catch(() => {})
})

/**
 * Calls the listener with true when an answer shows that the current token is read-only, and with false when an answer
 * shows that it no longer is.
 * @param {(isReadOnly: boolean) => void} listener
 */
export function watchAccess(listener) {
  onAccess = listener
}

/**
 * Like `fetch`. If tandem requires a token, this waits until the user has entered the right one.
 * @param {string} path
 * @param {RequestInit} [init]
 * @param {number} [patienceMS] timeout for each try; 0: none
 * @returns {Promise<Response>}
 */
export async function ask(path, init = {}, patienceMS = 0) {
  for (;;) {
    const { response, token } = await request(path, init, patienceMS)
    if (response.status !== 401) return response
    // The user may have entered a new token meanwhile, for another request.
    if (sessionStorage.getItem(storageKey) === token) await askForToken(token !== null)
  }
}

/**
 * Sends the request of a command once. If tandem requires another token, this asks for it and returns the answer with
 * status 401. It does not wait for the token: the command must not be sent later, when it may have another effect.
 * @param {string} path
 * @param {RequestInit} init
 * @returns {Promise<Response>}
 */
export async function askOnce(path, init) {
  const { response, token } = await request(path, init, 0)
  if (response.status === 401 && sessionStorage.getItem(storageKey) === token) {
    showForm(token !== null)
    showText(
      'access-note',
      'The command was refused: the token is missing or wrong. Enter it, then send the command again.',
    )
    field.focus()
  }
  return response
}

/**
 * @param {string} path
 * @param {RequestInit} init
 * @param {number} patienceMS
 * @returns {Promise<{ response: Response, token: string | null }>} with the token that was sent
 */
async function request(path, init, patienceMS) {
  const token = sessionStorage.getItem(storageKey)
  const headers = token === null ? {} : { Authorization: `Bearer ${token}` }
  // The timeout covers one try only, because the user may take long to enter the token.
  const signal = patienceMS > 0 ? { signal: AbortSignal.timeout(patienceMS) } : {}
  const response = await fetch(path, { ...init, ...signal, headers })
  // An answer to an earlier token says nothing about the current one.
  if (sessionStorage.getItem(storageKey) === token) showAccess(response)
  return { response, token }
}

/** @param {Response} response */
function showAccess({ ok, headers }) {
  const sent = headers.get('Tandem-Access')
  // Only an instance that requires no token answers without this header. A refusal may lack it for another reason.
  if (sent === null && !ok) return
  const reads = sent === 'read'
  if (reads === isReadOnly) return
  isReadOnly = reads
  onAccess(reads)
}

/**
 * Asks for the control token, because the current token is read-only. The current token stays in use until the user
 * enters another one. Then the user has to send the command again.
 */
export function askForControlToken() {
  if (!form.hidden) return
  showText('access-note', 'The token is read-only. Enter the token of --tokenFile to send commands.')
  form.hidden = false
  field.focus()
}

/**
 * Asks the user for a token. Several requests wait for one answer.
 * @param {boolean} wasWrong whether tandem refused the token that was sent
 * @returns {Promise<void>}
 */
function askForToken(wasWrong) {
  showForm(wasWrong)
  return new Promise((resolve) => waiting.push(resolve))
}

/** @param {boolean} wasWrong */
function showForm(wasWrong) {
  if (!form.hidden) return
  sessionStorage.removeItem(storageKey)
  showText('access-note', wasWrong ? 'That is not the token of this instance.' : 'This instance requires its token.')
  form.hidden = false
  document.body.dataset['access'] = 'asked'
  if (document.activeElement === document.body) field.focus()
}
