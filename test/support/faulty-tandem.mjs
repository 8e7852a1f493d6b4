// @ts-check
import { openSync, readFileSync, readSync } from 'node:fs'
import process from 'node:process'

/**
 * Runs the built tandem with its own command line and composition, and injects at least one of these faults:
 *
 *   FAULT_CRASH_AT=step               kills the process at this step of a commit or a reversal (docs/logs.md, `commit step`), like kill -9
 *   FAULT_DROP_EVENTS_OF=db.coll      drops the document events of this namespace before they are applied, as a bug might
 *   FAULT_REPAIR_AT_MOST=n            lets a repair converge collections above this number of differences instead of a million
 *   FAULT_STOOD_STILL=file            delays the monotonic clock by the milliseconds in that file, as a suspension of the machine does
 *
 * The product contains no code for these faults.
 */

/** @param {string} file path within the build */
const built = async (file) => await import(new URL(`../../dist/src/${file}`, import.meta.url).href)

const {
  FAULT_CRASH_AT: crashAt,
  FAULT_DROP_EVENTS_OF: dropEventsOf,
  FAULT_REPAIR_AT_MOST: repairAtMost,
  FAULT_STOOD_STILL: stoodStill,
} = process.env
if (!crashAt && !dropEventsOf && !repairAtMost && !stoodStill) {
  throw new Error('faulty-tandem needs a fault; start the product instead')
}
process.stderr.write(`fault injected: ${JSON.stringify({ crashAt, dropEventsOf, repairAtMost, stoodStill })}\n`)

if (stoodStill) {
  const file = openSync(stoodStill, 'r')
  const text = Buffer.alloc(16)
  const realNow = performance.now.bind(performance)
  // Read the file on each call. It is written while this process is stopped, and must take effect from the first
  // instruction after that.
  performance.now = () => realNow() - Number(text.toString('latin1', 0, readSync(file, text, 0, text.length, 0)))
}

if (dropEventsOf) {
  const { Lanes } = await built('apply/lanes.js')
  const put = Lanes.prototype.put
  if (typeof put !== 'function') throw new Error('tandem no longer passes events through Lanes.put')
  /**
   * @param {number} lane
   * @param {unknown} entry
   * @param {{ database: string, collection: string }} event
   * @param {unknown[]} rest
   */
  Lanes.prototype.put = function (lane, entry, event, ...rest) {
    if (`${event.database}.${event.collection}` === dropEventsOf) return
    return put.call(this, lane, entry, event, ...rest)
  }
}

if (repairAtMost) {
  const { Replication } = await built('session/replication.js')
  const repair = Replication.prototype.repair
  if (typeof repair !== 'function') throw new Error('tandem no longer repairs through Replication.repair')
  /** @param {unknown} store */
  Replication.prototype.repair = function (store) {
    return repair.call(this, store, Number(repairAtMost))
  }
}

const [{ parseCommandLine }, { compose: composeInstance }, { serve }] = await Promise.all(
  ['cli/options.js', 'compose.js', 'serve.js'].map(built),
)

/** @param {{ atStep: (step: string) => void }} options */
function compose(options) {
  /** @param {string} step */
  const atStep = (step) => {
    options.atStep(step)
    if (step === crashAt) process.kill(process.pid, 'SIGKILL')
  }
  return composeInstance({ ...options, atStep })
}

const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8'))
const commandLine = parseCommandLine(process.argv.slice(2), process.env, version)
if (commandLine.kind !== 'serve')
  throw new Error(`faulty-tandem only runs an instance, but the command line is ${JSON.stringify(commandLine)}`)
await serve(commandLine.options, version, compose)
