/** @import { Sample } from '../api/sample-schema.ts' */
/** @import { Command } from './commands.js' */
import { effect, obstacle, ownCommands } from './commands.js'
import { enumerated } from './format.js'

/** Composes the confirmation of a command, and decides whether its text is still true when the user confirms. */

/**
 * @typedef {{ command: Command, receivers: readonly string[], effect: string, stakes: string }} Asked `stakes` is the
 * effect without the figures that change each second
 */

/**
 * @param {Command} command
 * @param {Sample['instances']} instances
 * @param {string | null} self the instance that serves the page
 * @returns {Asked}
 */
export function askedOf(command, instances, self) {
  const living = instances.filter(({ status }) => status === 'alive').map(({ mongosyncID }) => mongosyncID)
  return {
    command,
    receivers: ownCommands.has(command) ? living.filter((id) => id === self) : living,
    effect: effect(command, instances),
    stakes: effect(command, instances, { figures: false }),
  }
}

/**
 * Returns the reason why a confirmation no longer says what the command would do; null if it still does.
 * @param {Asked} asked
 * @param {Sample['instances']} instances
 * @param {string | null} self
 * @returns {string | null}
 */
export function outdated(asked, instances, self) {
  const why = obstacle(asked.command, instances, self)
  if (why !== null) return why
  const now = askedOf(asked.command, instances, self)
  if (now.receivers.toSorted().join() !== asked.receivers.toSorted().join()) {
    return `it would now go to ${enumerated([...now.receivers])}, not to ${enumerated([...asked.receivers])}`
  }
  return now.stakes === asked.stakes ? null : 'its effect has changed since the confirmation was shown'
}
