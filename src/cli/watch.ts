import { setTimeout as sleep } from 'node:timers/promises'
import { printable } from '../domain/printable.ts'
import type { Access } from './access.ts'
import { type Sample, takeSample } from './samples.ts'
import { headline, ratesOf, view } from './view.ts'

export interface WatchRequest {
  urls: string[]
  access?: Access | undefined
  /** Null: the default for the kind of output. */
  intervalSeconds: number | null
  json: boolean
}

export interface WatchOutput {
  write: (text: string) => void
  /** Columns of the terminal; null if the output is not a terminal. */
  width: () => number | null
  /** Aborting it ends the command. */
  signal: AbortSignal
}

const secondsBetween = { terminal: 1, lines: 10 }
/** Number of samples kept, for rates and for the chart of the lag. */
const keptMax = 120
const control = '\u001b['

/**
 * Shows the state of the sync until the output's signal is aborted: on a terminal a view that is redrawn, otherwise one
 * line per interval.
 */
export async function runWatch(request: WatchRequest, output: WatchOutput): Promise<number> {
  const history: Sample[] = []
  while (!output.signal.aborted) {
    const sample = await takeSample(request)
    history.push(sample)
    if (history.length > keptMax) history.shift()
    const width = output.width()
    if (request.json) output.write(`${JSON.stringify(toJson(history))}\n`)
    else if (width === null) output.write(`${printable(`${new Date(sample.at).toISOString()} ${headline(sample)}`)}\n`)
    else output.write(drawn(view(history, width)))
    const interval = request.intervalSeconds ?? (width === null ? secondsBetween.lines : secondsBetween.terminal)
    await sleep(interval * 1_000, undefined, { signal: output.signal }).catch(() => {})
  }
  return 0
}

/** Overwrites the previous view line by line, so that nothing flickers. */
function drawn(lines: readonly string[]): string {
  const clearLine = `${control}K`
  return `${control}H${lines.map((line) => `${printable(line)}${clearLine}\n`).join('')}${control}J`
}

function toJson(history: readonly Sample[]): unknown {
  const { at, answered, unanswered, rows, totals } = history.at(-1) as Sample
  return {
    at: new Date(at).toISOString(),
    totals,
    rates: ratesOf(history),
    progress: answered,
    instances: rows,
    unanswered,
  }
}
