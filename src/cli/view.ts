import type { Progress } from '../domain/progress.ts'
import { inUnits, lineOf, notes, statusTable } from './answers.ts'
import type { Sample } from './samples.ts'
import { truncate } from './table.ts'

/** Shows the state of a sync in a few lines, from the latest answers of its instances. */

/** Rates are averages over at most this many milliseconds. */
const rateMS = 30_000
const barCells = 24
const sparks = '▁▂▃▄▅▆▇█'
const sparkCells = 30

export interface Rates {
  /** Bytes copied per second; null while it is unknown. */
  bytes: number | null
  /** Events applied per second; null while it is unknown. */
  events: number | null
  /** Seconds until the copy is complete at this rate; null if it cannot be estimated. */
  copyEnds: number | null
}

/** @param history oldest first */
export function ratesOf(history: readonly Sample[]): Rates {
  const last = history.at(-1)
  const first = last && history.find(({ at, rows }) => at >= last.at - rateMS && rows.length > 0)
  const seconds = last && first ? (last.at - first.at) / 1_000 : 0
  if (!last || !first || seconds <= 0) return { bytes: null, events: null, copyEnds: null }
  // A count that has decreased was reset by a restart, so there is no rate.
  const rate = (before: number, now: number): number | null => (now < before ? null : (now - before) / seconds)
  const bytes = rate(first.totals.estimatedCopiedBytes, last.totals.estimatedCopiedBytes)
  const left = last.totals.estimatedTotalBytes - last.totals.estimatedCopiedBytes
  return {
    bytes,
    events: rate(first.totals.totalEventsApplied, last.totals.totalEventsApplied),
    copyEnds: bytes && left > 0 ? left / bytes : null,
  }
}

/** @param share 0 to 1 */
export function bar(share: number, cells = barCells): string {
  // The bar is full only if nothing is left.
  const full = share >= 1 ? cells : Math.min(cells - 1, Math.floor(Math.max(0, share) * cells))
  return '█'.repeat(full) + '░'.repeat(cells - full)
}

/** The highest value has the highest bar; 0 has the lowest. */
export function sparkline(values: readonly number[], cells = sparkCells): string {
  const shown = values.slice(-cells)
  const highest = Math.max(...shown, 1)
  return shown.map((value) => sparks[Math.round((Math.max(0, value) / highest) * (sparks.length - 1))]).join('')
}

/** The duration in its two longest units. */
export function duration(seconds: number): string {
  const whole = Math.ceil(seconds)
  const parts = [
    [Math.floor(whole / 86_400), 'd'],
    [Math.floor(whole / 3_600) % 24, 'h'],
    [Math.floor(whole / 60) % 60, 'min'],
    [whole % 60, 's'],
  ] as const
  const first = parts.findIndex(([count]) => count > 0)
  if (first === -1) return '0 s'
  const shown = parts.slice(first, first + 2).filter(([count], at) => at === 0 || count > 0)
  return shown.map(([count, unit]) => `${count} ${unit}`).join(' ')
}

/** Returns one line with the state, the copied share and the lag. */
export function headline({ answered, unanswered, totals }: Sample): string {
  const states = [...new Set(answered.map(({ state, info }) => (info ? `${state} (${info})` : state)))]
  const silent = unanswered.length > 0 ? [`${unanswered.length} not answering`] : []
  const copy = totals.estimatedTotalBytes > 0 ? [`copied ${totals.percent.toFixed(2)} %`] : []
  const lag = totals.lagTimeSeconds === null ? [] : [`lag ${totals.lagTimeSeconds} s`]
  return [...states, ...silent, ...copy, ...lag].join(', ')
}

/** @param history oldest first, with at least one sample */
export function view(history: readonly Sample[], width: number): string[] {
  const sample = history.at(-1) as Sample
  const { totals, rows, answered } = sample
  const rates = ratesOf(history)
  const lines = [`${new Date(sample.at).toISOString().slice(11, 19)}  ${headline(sample)}`]
  if (totals.estimatedTotalBytes > 0) {
    const { estimatedCopiedBytes: copied, estimatedTotalBytes: total, percent } = totals
    const rate = rates.bytes ? [`${inUnits(Math.round(rates.bytes))}/s`] : []
    const ends = rates.copyEnds === null ? [] : [`${duration(rates.copyEnds)} left`]
    lines.push(
      [
        `copy    ${bar(percent / 100)}`,
        `${percent.toFixed(2)} %`,
        `${inUnits(copied)} of ${inUnits(total)}`,
        ...rate,
        ...ends,
        ...convergingOf(rows, answered),
      ].join('  '),
    )
  }
  for (const line of verificationLines(rows.map(({ progress }) => progress).concat(answered))) lines.push(line)
  if (totals.lagTimeSeconds !== null) {
    const oplog = answered.find(({ estimatedOplogTimeRemaining }) => estimatedOplogTimeRemaining)
    const left = oplog ? [`oplog time left ${oplog.estimatedOplogTimeRemaining}`] : []
    const lags = history.flatMap((one) => (one.totals.lagTimeSeconds === null ? [] : [one.totals.lagTimeSeconds]))
    lines.push([`lag     ${sparkline(lags)}`, `${totals.lagTimeSeconds} s`, ...left].join('  '))
    const rate = rates.events === null ? [] : [`${Math.round(rates.events).toLocaleString('en')}/s`]
    lines.push([`events  ${totals.totalEventsApplied.toLocaleString('en')} applied`, ...rate].join('  '))
  }
  const table = rows.map(lineOf)
  const short = lines.map((line) => truncate(line, width))
  const below = [...notes(table, []), ...sample.unanswered.map(({ why }) => why)]
  return [
    ...short,
    ...(rows.length > 1 ? ['', ...statusTable(table, totals, width)] : []),
    ...(below.length > 0 ? ['', ...below] : []),
  ]
}

/**
 * Returns the number of collections that are converging. An instance counts only those in which it still has work, so the
 * largest reported number is shown.
 */
function convergingOf(rows: Sample['rows'], answered: Sample['answered']): string[] {
  const all = [...rows.map(({ progress }) => progress), ...answered]
  const most = Math.max(0, ...all.map(({ convergingCollections = 0 }) => convergingCollections))
  return most === 0 ? [] : [`${most.toLocaleString('en')} ${most === 1 ? 'collection' : 'collections'} converging`]
}

/** The verification progress that the first instance reports. All other instances report the same. */
function verificationLines(all: readonly Progress[]): string[] {
  const found = all.find(({ verification }) => verification && verification.source.phase !== 'not started')
  if (!found?.verification) return []
  const { source } = found.verification
  const share = source.estimatedDocumentCount > 0 ? source.hashedDocumentCount / source.estimatedDocumentCount : 1
  const counts = `${source.hashedDocumentCount.toLocaleString('en')} of ${source.estimatedDocumentCount.toLocaleString('en')} documents`
  return [`verify  ${bar(share)}  ${source.phase}  ${counts}`]
}
