/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Command } from './commands.js' */
/** @import { ShownError } from './error-text.js' */
/** @import { Entry } from './page.js' */
/** @import { Asked } from './question.js' */
import { askForControlToken, askOnce, watchAccess } from './access.js'
import { allOf, commands, cutoverCommands, obstacle, ownCommands } from './commands.js'
import { Confirmation } from './confirmation.js'
import { linkOfError } from './docs-link.js'
import { errorText } from './error-text.js'
import { count, enumerated } from './format.js'
import { byId, create, setList, setText } from './page.js'
import { askedOf, outdated } from './question.js'

/** The command buttons, the confirmation before each command, and the answers of the instances. */

/** @typedef {ShownError & { success: boolean }} Answer */
/**
 * @typedef {Answer & {
 *   answers?: Record<string, Answer>, repairedDocuments?: number, convergingCollections?: number
 * }} Reply
 */

const label = {
  pause: 'Pause',
  resume: 'Resume',
  commit: 'Commit',
  abort: 'Abort',
  reverse: 'Reverse',
  repair: 'Repair',
}

export class Actions {
  /** @type {Sample['instances']} */
  #instances = []
  /** @type {string | null} */
  #self = null
  /** The reason why no command is possible while the state of the sync cannot be read. @type {string | null} */
  #unread = null
  #connected = false
  #isReadOnly = false
  /** @type {Command | null} */
  #sending = null
  #confirmation = new Confirmation()
  /** What the user is asked to confirm. @type {Asked | null} */
  #asked = null
  /** @type {Map<Command, { button: HTMLButtonElement, reason: HTMLElement }>} */
  #controls = new Map()

  constructor() {
    for (const command of commands) {
      const reasonID = `why-not-${command}`
      const attributes = { type: 'button', id: command, 'aria-describedby': reasonID }
      const button = create('button', { text: label[command], attributes })
      const reason = create('span', { className: 'detail', attributes: { id: reasonID } })
      const item = create('li')
      item.append(button, reason)
      byId(placeOf(command)).append(item)
      button.addEventListener('click', () => this.#ask(command))
      this.#controls.set(command, { button, reason })
    }
    byId('enter-control-token').addEventListener('click', askForControlToken)
    watchAccess((isReadOnly) => {
      this.#isReadOnly = isReadOnly
      byId('read-only').hidden = !isReadOnly
      this.#update()
      this.#review()
    })
    this.#update()
  }

  /** @param {Sample} sample */
  show({ instances, self, problem }) {
    this.#instances = instances
    this.#self = self
    this.#unread = problem === null ? null : 'the state of the sync cannot be read now'
    this.#connected = true
    this.#update()
    this.#review()
  }

  disconnected() {
    this.#connected = false
    this.#update()
    this.#review()
  }

  /**
   * @param {Command} command
   * @returns {string | null}
   */
  #obstacle(command) {
    if (this.#sending) return this.#sending === command ? 'waiting for the answers' : `${this.#sending} is being sent`
    if (!this.#connected) return 'no connection to tandem'
    if (this.#isReadOnly) return 'the token is read-only'
    return this.#unread ?? obstacle(command, this.#instances, this.#self)
  }

  /** A disabled button keeps its place in the focus order, so that its reason can be read. */
  #update() {
    for (const [command, { button, reason }] of this.#controls) {
      const why = this.#obstacle(command)
      if (button.getAttribute('aria-disabled') !== String(why !== null)) {
        button.setAttribute('aria-disabled', String(why !== null))
      }
      setText(reason, why ?? '')
    }
  }

  /** @param {Command} command */
  #ask(command) {
    if (this.#obstacle(command) !== null) return
    const asked = askedOf(command, this.#instances, this.#self)
    const { receivers, effect } = asked
    const name = ownCommands.has(command) ? label[command] : `${label[command]} on ${allOf(receivers.length)}`
    this.#asked = asked
    this.#confirmation.ask({
      title: `${name}?`,
      effect,
      to: `Sent to ${enumerated([...receivers])}.`,
      confirm: name,
      word: cutoverCommands.has(command) ? command : null,
      proceed: () => {
        // The dialog may have been open for a long time, and the browser may have suspended the page.
        if (this.#review()) void this.#send(command)
        this.#asked = null
      },
      cancelled: () => {
        this.#asked = null
      },
    })
  }

  /**
   * Withdraws the confirmation and shows the reason if the command is no longer possible, or if the text of the
   * confirmation no longer says what the command would do. The user must not confirm an outdated text.
   * @returns {boolean} true if there is a confirmation and the user may still confirm
   */
  #review() {
    const asked = this.#asked
    if (!asked) return false
    const { command } = asked
    const why = this.#obstacle(command) ?? outdated(asked, this.#instances, this.#self)
    if (why === null) {
      this.#confirmation.refresh(askedOf(command, this.#instances, this.#self).effect)
      return true
    }
    this.#asked = null
    this.#confirmation.withdraw()
    showOutcome([{ text: `${command} was not sent: ${why}.`, className: 'refused' }])
    return false
  }

  /** @param {Command} command */
  async #send(command) {
    this.#sending = command
    this.#update()
    const isOwn = ownCommands.has(command)
    showOutcome([{ text: `Sending ${command} to ${isOwn ? this.#self : 'all instances'} …`, className: 'pending' }])
    try {
      const path = isOwn ? `/api/v1/${command}` : `/api/v1/all/${command}`
      const response = await askOnce(path, { method: 'POST', body: '{}' })
      if (response.status === 401) {
        const text = `${command} was refused, because the token is missing or wrong. Enter the token, then send the command again.`
        showOutcome([{ text, className: 'refused' }])
        return
      }
      const reply = /** @type {Reply} */ (await response.json())
      if (reply.error === 'Forbidden') askForControlToken()
      showOutcome(outcomeOf(command, reply))
    } catch {
      const text = `${command}: tandem did not answer. Some instances may have received the command; check their states.`
      showOutcome([{ text, className: 'refused' }])
    } finally {
      this.#sending = null
      this.#update()
    }
  }
}

/** @param {Command} command */
function placeOf(command) {
  if (command === 'repair') return 'repairing'
  return cutoverCommands.has(command) ? 'cutover' : 'commands'
}

/**
 * @param {Command} command
 * @param {Reply} reply
 * @returns {Entry[]}
 */
function outcomeOf(command, { answers, repairedDocuments, convergingCollections, ...error }) {
  if (repairedDocuments !== undefined) {
    return [{ text: repairedText(repairedDocuments, convergingCollections ?? 0), className: 'accepted' }]
  }
  if (!answers) return [{ text: `${command}: ${errorText(error)}`, className: 'refused', link: linkOfError(error) }]
  const all = Object.entries(answers)
  const accepted = all.filter(([, { success }]) => success).map(([id]) => id)
  const refused = all.filter(([, { success }]) => !success)
  return [
    ...(accepted.length > 0 ? [{ text: `${command} accepted by ${enumerated(accepted)}`, className: 'accepted' }] : []),
    ...refused.map(([id, answer]) => ({
      text: `${id}: ${errorText(answer)}`,
      className: 'refused',
      link: linkOfError(answer),
    })),
  ]
}

/**
 * @param {number} documents
 * @param {number} converging
 */
function repairedText(documents, converging) {
  const repaired = `repair: ${count(documents)} ${documents === 1 ? 'document is' : 'documents are'} equal to the source now`
  if (converging === 0) return `${repaired}. Send resume, which commits again.`
  const collections = `${count(converging)} ${converging === 1 ? 'collection' : 'collections'}`
  return `${repaired}. The commit was aborted in order to converge ${collections}; send commit when it is possible.`
}

/** @param {Entry[]} lines */
function showOutcome(lines) {
  const place = byId('outcome')
  const list = place.querySelector('ul') ?? create('ul')
  setList(list, lines)
  if (!list.isConnected) place.append(list)
}
