/** @import { HistoryPoint, Sample } from '../api/sample-schema.ts' */
import { ask } from './access.js'
import { Actions } from './actions.js'
import { watchAuditTrail } from './audit-trail.js'
import { Chart } from './chart.js'
import { showCollections, watchCollections } from './collections.js'
import { bytes, count, duration } from './format.js'
import { History } from './history.js'
import { showInstances } from './instances.js'
import { showMismatches } from './mismatches.js'
import { showFigures, showState, stateOf } from './overview.js'
import { byId, showText } from './page.js'
import { leadingProgress, phasesOf, showPhases } from './phases.js'
import { eventsOf } from './server-sent-events.js'

/** Receives tandem's events and shows them while the page is open. */

/** If nothing arrives for this many milliseconds, the connection counts as broken. A sample is due every second. */
const silenceMS = 20_000
/** Milliseconds before a closed connection is opened again. */
const renewMS = 1_000

const actions = new Actions()
const history = new History()
const lagChart = new Chart(byId('lag-chart'), { title: 'Lag', format: duration })
const eventsChart = new Chart(byId('events-chart'), { title: 'Events applied', format: (rate) => `${count(rate)}/s` })
const bytesChart = new Chart(byId('bytes-chart'), { title: 'Copied', format: (rate) => `${bytes(rate)}/s` })
const range = /** @type {HTMLSelectElement} */ (byId('range'))
let announced = ''
/** Time of the latest sample. */
let latest = 0

/** @param {Sample} sample */
function show(sample) {
  history.add(sample)
  latest = sample.at
  const [events, copied] = showHistory()
  showState(sample)
  showPhases(phasesOf(leadingProgress(sample)))
  showFigures(sample, { events: events.at(-1)?.value ?? null, bytes: copied.at(-1)?.value ?? null })
  showInstances(sample)
  showCollections(sample)
  showMismatches(sample)
  actions.show(sample)
  announce(sample)
}

/** Returns the rates of events and of copied bytes. */
function showHistory() {
  const [events, copied] = [history.eventsPerSecond(), history.bytesPerSecond()]
  const minutes = Number(range.value)
  lagChart.show(history.lag(), latest, minutes)
  eventsChart.show(events, latest, minutes)
  bytesChart.show(copied, latest, minutes)
  return /** @type {const} */ ([events, copied])
}

/**
 * Announces states and failures to screen readers.
 * @param {Sample} sample
 */
function announce(sample) {
  const failures = sample.instances.flatMap(({ mongosyncID, status, progress: { failure } }) =>
    failure && status === 'alive' ? [` ${mongosyncID}: ${failure.error}.`] : [],
  )
  const state = `The sync is ${stateOf(sample)}.${failures.join('')}`
  if (announced !== '' && announced !== state) showText('announcer', state)
  announced = state
}

/**
 * @param {'connecting' | 'live' | 'reconnecting'} status
 */
function connection(status) {
  const place = byId('connection')
  if (place.dataset['status'] === status) return
  place.dataset['status'] = status
  showText('connection-text', status)
  document.body.dataset['connection'] = status
  if (status !== 'reconnecting') return
  actions.disconnected()
  showText('announcer', 'The connection to tandem is lost. Reconnecting.')
}

/** Never returns: it opens the connection again whenever the connection ends. */
async function listen() {
  for (;;) {
    const ended = new AbortController()
    let silence = 0
    const heard = () => {
      clearTimeout(silence)
      silence = setTimeout(() => ended.abort(), silenceMS)
    }
    try {
      heard()
      const response = await ask('/api/v1/events', { signal: ended.signal })
      if (!response.ok) throw new Error(`answered ${response.status}`)
      for await (const { name, data } of eventsOf(response)) {
        heard()
        if (name === 'history') history.merge(/** @type {{ points: HistoryPoint[] }} */ (JSON.parse(data)).points)
        else {
          connection('live')
          show(/** @type {Sample} */ (JSON.parse(data)))
        }
      }
    } catch {
      // The loop connects again after any error.
    }
    clearTimeout(silence)
    ended.abort() // closes this connection before the next one is opened
    connection('reconnecting')
    await new Promise((resolve) => setTimeout(resolve, renewMS))
  }
}

range.addEventListener('change', showHistory)
void listen()
watchCollections()
watchAuditTrail()
