/** @import { FailureAnswer } from '../api/schemas.ts' */
import { ask } from './access.js'
import { errorText } from './error-text.js'

/** Timeout for one request, because a half-open connection never answers. */
const patienceMS = 30_000

/**
 * @template {{ success: true }} Answer
 * @typedef {{
 *   path: () => string, isWanted?: () => boolean, everyMS: () => number, show: (answer: Answer) => void,
 *   fail: (problem: string) => void
 * }} PollOptions `path` is called before and after each request; if it has changed, the answer is not shown
 */

/**
 * Requests one path again and again, but only while the page is visible and the answer is wanted.
 * @template {{ success: true }} Answer
 */
export class Poll {
  #options
  #timer = 0
  #isRequesting = false

  /** @param {PollOptions<Answer>} options */
  constructor(options) {
    this.#options = options
    document.addEventListener('visibilitychange', () => void this.refresh())
  }

  /** Sends one request at a time. After the answer it schedules the next one. */
  async refresh() {
    clearTimeout(this.#timer)
    const { path, isWanted = () => true, everyMS, show, fail } = this.#options
    if (document.visibilityState !== 'visible' || this.#isRequesting || !isWanted()) return
    this.#isRequesting = true
    const requested = path()
    try {
      const response = await ask(requested, {}, patienceMS)
      const answer = /** @type {Answer | FailureAnswer} */ (await response.json())
      if (requested === path()) {
        if (answer.success) show(answer)
        else fail(`Not available: ${errorText(answer)}`)
      }
    } catch {
      fail('Not available: tandem does not answer.')
    } finally {
      this.#isRequesting = false
      this.#timer = setTimeout(() => void this.refresh(), requested === path() ? everyMS() : 0)
    }
  }
}
