import { byId, showText } from './page.js'

/** The dialog that asks for confirmation before a command is sent. */

/**
 * @typedef {{
 *   title: string, effect: string, to: string, confirm: string, word: string | null, proceed: () => void,
 *   cancelled: () => void
 * }} Question `confirm` is the text of the button that confirms. `word` is the word that the user must type first; null if
 * the user need not type one.
 */

export class Confirmation {
  /** @type {Question | null} */
  #question = null
  #dialog = /** @type {HTMLDialogElement} */ (byId('dialog'))
  #button = byId('dialog-confirm')
  #field = /** @type {HTMLInputElement} */ (byId('dialog-word'))

  constructor() {
    byId('dialog-cancel').addEventListener('click', () => this.#dialog.close())
    this.#field.addEventListener('input', () => this.#update())
    byId('dialog-form').addEventListener('submit', (event) => {
      event.preventDefault()
      const question = this.#question
      if (!question || !this.#isTyped()) return
      this.withdraw()
      question.proceed()
    })
    // The Cancel button and Escape cause this event. The browser delivers it later, when another question may be open.
    this.#dialog.addEventListener('close', () => {
      if (this.#dialog.open) return
      this.#question?.cancelled()
      this.#question = null
    })
  }

  /** Closes the dialog without sending anything. */
  withdraw() {
    this.#question = null
    this.#dialog.close()
  }

  /**
   * Updates the figures in the text of the open dialog.
   * @param {string} effect
   */
  refresh(effect) {
    showText('dialog-effect', effect)
  }

  /** @param {Question} question */
  ask(question) {
    this.#question = question
    const { title, effect, to, confirm, word } = question
    showText('dialog-title', title)
    showText('dialog-effect', effect)
    showText('dialog-to', to)
    showText('dialog-confirm', confirm)
    showText('dialog-wanted', word ?? '')
    byId('dialog-typed').hidden = word === null
    this.#field.value = ''
    this.#update()
    this.#dialog.showModal()
    if (word !== null) this.#field.focus()
  }

  #isTyped() {
    const word = this.#question?.word ?? null
    return word === null || this.#field.value.trim() === word
  }

  /** Sets `aria-disabled` instead of `disabled`, because a disabled button leaves the focus order. */
  #update() {
    this.#button.setAttribute('aria-disabled', String(!this.#isTyped()))
  }
}
