/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Command } from './commands.js' */
/** @import { ShownError } from './error-text.js' */
import { ask, askForControlToken } from './access.js'
import { allOf, commands, cutoverCommands, effect, obstacle } from './commands.js'
import { Confirmation } from './confirmation.js'
import { errorText } from './error-text.js'
import { enumerated } from './format.js'
import { byId, create, setList, setText } from './page.js'

/** The command buttons, the confirmation before each command, and the answers of the instances. */

/** @typedef {ShownError & { success: boolean }} Answer */
/** @typedef {Answer & { answers?: Record<string, Answer> }} Reply */

const label = { pause: 'Pause', resume: 'Resume', commit: 'Commit', abort: 'Abort', reverse: 'Reverse' }

export class Actions {
  /** @type {Sample['instances']} */
  #instances = []
  #connected = false
  /** @type {Command | null} */
  #sending = null
  #confirmation = new Confirmation()
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
      byId(cutoverCommands.has(command) ? 'cutover' : 'commands').append(item)
      button.addEventListener('click', () => this.#ask(command))
      this.#controls.set(command, { button, reason })
    }
    this.#update()
  }

  /** @param {Sample} sample */
  show({ instances }) {
    this.#instances = instances
    this.#connected = true
    this.#update()
  }

  disconnected() {
    this.#connected = false
    this.#update()
  }

  /**
   * @param {Command} command
   * @returns {string | null}
   */
  #obstacle(command) {
    if (this.#sending) return this.#sending === command ? 'waiting for the answers' : `${this.#sending} is being sent`
    return this.#connected ? obstacle(command, this.#instances) : 'no connection to tandem'
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
    const living = this.#instances.filter(({ status }) => status === 'alive')
    const name = `${label[command]} on ${allOf(living.length)}`
    this.#confirmation.ask({
      title: `${name}?`,
      effect: effect(command, this.#instances),
      to: `Sent to ${enumerated(living.map(({ mongosyncID }) => mongosyncID))}.`,
      confirm: name,
      word: cutoverCommands.has(command) ? command : null,
      proceed: () => void this.#send(command),
    })
  }

  /** @param {Command} command */
  async #send(command) {
    this.#sending = command
    this.#update()
    showOutcome([{ text: `Sending ${command} to all instances …`, className: 'pending' }])
    try {
      const response = await ask(`/api/v1/all/${command}`, { method: 'POST', body: '{}' })
      const reply = /** @type {Reply} */ (await response.json())
      if (reply.error === 'Forbidden') askForControlToken()
      showOutcome(outcomeOf(command, reply))
    } catch {
      const text = `${command}: tandem did not answer. Some instances may have received it; check their states.`
      showOutcome([{ text, className: 'refused' }])
    } finally {
      this.#sending = null
      this.#update()
    }
  }
}

/**
 * @param {Command} command
 * @param {Reply} reply
 */
function outcomeOf(command, { answers, ...error }) {
  if (!answers) return [{ text: `${command}: ${errorText(error)}`, className: 'refused' }]
  const all = Object.entries(answers)
  const accepted = all.filter(([, { success }]) => success).map(([id]) => id)
  const refused = all.filter(([, { success }]) => !success)
  return [
    ...(accepted.length > 0 ? [{ text: `${command} accepted by ${enumerated(accepted)}`, className: 'accepted' }] : []),
    ...refused.map(([id, answer]) => ({ text: `${id}: ${errorText(answer)}`, className: 'refused' })),
  ]
}

/** @param {{ text: string, className: string }[]} lines */
function showOutcome(lines) {
  const place = byId('outcome')
  const list = place.querySelector('ul') ?? create('ul')
  setList(list, lines)
  if (!list.isConnected) place.append(list)
}
