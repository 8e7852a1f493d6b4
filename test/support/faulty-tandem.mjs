// @ts-check
import { openSync, readFileSync, readSync } from 'node:fs'
import process from 'node:process'

/**
 * The tandem that is built, with what goes wrong on purpose wrapped around it: its own command line and composition, and one of these.
 *
 *   FAULT_CRASH_AT=step               it dies at this step of a commit or a reversal (docs/logs.md, `commit step`), as by kill -9
 *   FAULT_DROP_EVENTS_OF=db.coll      it loses the document events of this namespace before they are applied, as a bug might
 *   FAULT_STOOD_STILL=file            its monotonic clock is behind by the milliseconds in that file, as after a suspension of its machine
 *
 * The product knows neither, and holds nothing that does such things.
 */

/** @param {string} file of the build */
const built = async (file) => await import(new URL(`../../dist/src/${file}`, import.meta.url).href)

const { FAULT_CRASH_AT: crashAt, FAULT_DROP_EVENTS_OF: dropEventsOf, FAULT_STOOD_STILL: stoodStill } = process.env
if (!crashAt && !dropEventsOf && !stoodStill) {
  throw new Error('faulty-tandem without a fault: start the product instead')
}
process.stderr.write(`fault injected: ${JSON.stringify({ crashAt, dropEventsOf, stoodStill })}\n`)

if (stoodStill) {
  const file = openSync(stoodStill, 'r')
  const text = Buffer.alloc(16)
  const goesOn = performance.now.bind(performance)
  // Read each time: it is written while this process is stopped, and counts from its first instruction after that.
  performance.now = () => goesOn() - Number(text.toString('latin1', 0, readSync(file, text, 0, text.length, 0)))
}

if (dropEventsOf) {
  const { Lanes } = await built('apply/lanes.js')
  const put = Lanes.prototype.put
  if (typeof put !== 'function') throw new Error('events do not come by Lanes.put any more')
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
  throw new Error(`faulty-tandem runs an instance; this is ${JSON.stringify(commandLine)}`)
await serve(commandLine.options, version, compose)
