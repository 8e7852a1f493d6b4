/** @import { Sample } from '../api/sample-schema.ts' */
import { bytes } from './format.js'

/** The texts about the limits on bulk work, and about the back-off from an overloaded destination. */

/** @typedef {Sample['instances'][number]['progress']['limits']} Limits absent while only --loadLevel limits the work */

/** @param {Limits} limits */
export function limitsOf(limits) {
  if (!limits) return '–'
  const { bytesPerSecond, readConcurrency, writeConcurrency, backedOff } = limits
  const writes = backedOff
    ? `${backedOff.writeConcurrency} of ${writeConcurrency} writes at a time`
    : `${writeConcurrency} ${writeConcurrency === 1 ? 'write' : 'writes'} at a time`
  return [
    ...(bytesPerSecond === null ? [] : [`${bytes(bytesPerSecond)}/s`]),
    `${readConcurrency} ${readConcurrency === 1 ? 'read' : 'reads'}`,
    writes,
  ].join(', ')
}

/**
 * Returns the notice that an instance writes more slowly because the destination is overloaded; null if it does not.
 * @param {Limits} limits
 */
export function backOffOf(limits) {
  return limits?.backedOff ? `writing more slowly since ${limits.backedOff.since}: ${limits.backedOff.reason}` : null
}
