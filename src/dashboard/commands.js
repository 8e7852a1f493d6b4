/** @import { Sample } from '../api/sample-schema.ts' */
import { count, duration, enumerated, percent } from './format.js'

/** Decides which commands are possible now and why the others are not, and describes the effect of each. */

/** @typedef {'pause' | 'resume' | 'commit' | 'abort' | 'reverse' | 'repair'} Command */
/** @typedef {Sample['instances'][number]} Row */

/** @type {readonly Command[]} */
export const commands = ['pause', 'resume', 'commit', 'abort', 'reverse', 'repair']

/**
 * Commands that go only to the instance that serves the page. The others go to all instances.
 * @type {ReadonlySet<Command>}
 */
export const ownCommands = new Set(['repair'])

/**
 * Commands that decide where the application writes. They are set apart from the others, and the user types their name
 * to confirm them.
 * @type {ReadonlySet<Command>}
 */
export const cutoverCommands = new Set(['commit', 'reverse'])

/** A commit is refused above this lag. */
const lagMaxSeconds = 30

/**
 * Returns the reason why the command would be refused; null if it would be accepted.
 * @param {Command} command
 * @param {readonly Row[]} instances
 * @param {string | null} [self] the instance that serves the page
 * @returns {string | null}
 */
export function obstacle(command, instances, self = null) {
  const living = instances.filter(({ status }) => status === 'alive')
  if (living.length === 0)
    return instances.length === 0 ? 'no sync has been started' : 'no instance of the sync is alive'
  const inState = (/** @type {string[]} */ ...states) =>
    living.filter(({ progress }) => states.includes(progress.state))
  switch (command) {
    case 'pause':
      return inState('RUNNING').length > 0 ? null : 'no instance is RUNNING'
    case 'resume':
      return inState('PAUSED', 'FAILED').length > 0 ? null : 'no instance is PAUSED or FAILED'
    case 'commit':
      return commitObstacle(living)
    case 'abort':
      return inState('COMMITTING', 'FAILED').some(({ progress }) => progress.canWrite === false && isCommit(progress))
        ? null
        : 'no commit is under way'
    case 'reverse':
      return inState('COMMITTED').length === living.length ? null : 'waits for COMMITTED on every instance'
    case 'repair':
      return repairObstacle(living, self)
  }
}

/**
 * @param {readonly Row[]} living
 * @param {string | null} self
 * @returns {string | null}
 */
function repairObstacle(living, self) {
  const coordinator = living.find((row) => row.coordinator)
  if (!coordinator) return 'no live instance is the coordinator'
  const { mongosyncID, progress } = coordinator
  if (progress.failure?.error !== 'VerificationFailed') return `the coordinator, ${mongosyncID}, is ${progress.state}`
  return mongosyncID === self ? null : `only the coordinator repairs: open the dashboard of instance ${mongosyncID}`
}

/** @param {Row['progress']} progress */
function isCommit({ info }) {
  return info === 'waiting for commit to complete'
}

/**
 * @param {readonly Row[]} living
 * @returns {string | null}
 */
function commitObstacle(living) {
  const others = living.filter(({ progress }) => progress.state !== 'RUNNING')
  if (others.every(({ progress }) => progress.state === 'COMMITTED') && others.length === living.length) {
    return 'the sync is committed'
  }
  if (others.some(({ progress }) => progress.state === 'COMMITTING')) return 'the commit is under way'
  const [other] = others
  if (other) return `instance ${other.mongosyncID} is ${other.progress.state}`
  const unready = living.filter(({ progress }) => !progress.canCommit)
  if (unready.length === 0) return null
  const copying = unready.filter(({ progress }) => progress.info === 'collection copy')
  if (copying.length > 0) {
    const copied = living.reduce((sum, { progress }) => sum + (progress.collectionCopy?.estimatedCopiedBytes ?? 0), 0)
    const total = Math.max(...living.map(({ progress }) => progress.collectionCopy?.estimatedTotalBytes ?? 0))
    return `the copy has not ended (${Math.min(99, Math.floor(percent(copied, total)))} %)`
  }
  const side = unready.find(({ progress }) => progress.verification)?.progress.verification?.source
  if (side && side.phase !== 'stream hashing') {
    const { hashedDocumentCount: hashed, estimatedDocumentCount: all } = side
    return `the first verification has not ended (${count(hashed)} of ${count(all)} documents)`
  }
  const lag = Math.max(0, ...unready.map(({ progress }) => progress.lagTimeSeconds ?? 0))
  if (lag > lagMaxSeconds) return `the application of changes is ${duration(lag)} behind`
  return `${enumerated(unready.map(({ mongosyncID }) => mongosyncID))} cannot commit yet`
}

/**
 * @param {number} instances how many
 * @returns {string}
 */
export function allOf(instances) {
  return instances === 1 ? 'the one instance' : `all ${instances} instances`
}

/**
 * Describes the effect of a command for the user who is about to send it.
 * @param {Command} command
 * @param {readonly Row[]} instances
 * @param {{ figures: boolean }} [options] false: leaves out the figures that change every second
 * @returns {string}
 */
export function effect(command, instances, { figures } = { figures: true }) {
  const living = instances.filter(({ status }) => status === 'alive')
  const all = allOf(living.length)
  const mapping = living.find(({ progress }) => progress.directionMapping)?.progress.directionMapping
  const destination = mapping?.Destination ?? 'the destination'
  const source = mapping?.Source ?? 'the source'
  switch (command) {
    case 'pause': {
      const left = living.find(({ progress }) => progress.estimatedOplogTimeRemaining)
      const oplog = figures ? left?.progress.estimatedOplogTimeRemaining : null
      const until = oplog
        ? `The oplog of the source will reach back to the pause for ${oplog}: resume within that time.`
        : 'Resume while the oplog of the source still reaches back to the pause.'
      return `Pauses ${all}: nothing is copied or applied until resume, and ${destination} falls behind. ${until}`
    }
    case 'resume': {
      const failed = living.filter(({ progress }) => progress.state === 'FAILED')
      const names = enumerated(failed.map(({ mongosyncID }) => mongosyncID))
      const condition = failed.length > 0 ? ` First fix the cause of the failure of ${names}.` : ''
      const which = living.length === 1 ? 'The one instance' : 'Every instance that is PAUSED or FAILED'
      return `${which} continues where it stopped.${condition}`
    }
    case 'commit': {
      const lag = Math.max(0, ...living.map(({ progress }) => progress.lagTimeSeconds ?? 0))
      const estimate = figures ? living.find(({ progress }) => progress.commit)?.progress.commit : null
      const verified = living.some(({ progress }) => progress.verification !== null)
      return (
        `Ends the migration on ${all}. Stop all writes on ${source} first. The remaining changes are applied${figures ? ` (lag ${duration(lag)})` : ''}` +
        `${verified ? ', both clusters are compared one last time' : ''}, and writes on ${destination} are allowed afterwards. ` +
        `${estimate ? `That takes about ${duration(estimate.estimatedSeconds)}. ` : ''}You can abort the commit until it is ` +
        'decided, shortly before these writes are allowed. After that it cannot be undone, but a sync that was started as ' +
        'reversible can be reversed.'
      )
    }
    case 'abort':
      return (
        `Aborts the commit on ${all}: writes on ${source} are allowed again if the commit had blocked them, and ` +
        `changes on ${source} continue to be applied to ${destination}. You can send the commit again at any time.`
      )
    case 'reverse':
      return (
        `Swaps the direction of the sync on ${all}: ${destination} becomes the source, and all changes there since the commit are ` +
        `applied to ${source}, to which nobody else may have written since then.`
      )
    case 'repair':
      return (
        `Reads from ${source} again what the verification found different, and makes ${destination} equal. ` +
        'Then send resume, which commits again. If a whole collection has to be compared and copied again, repair aborts ' +
        'the commit instead; then send commit when it is possible.'
      )
  }
}
