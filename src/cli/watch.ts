import { setTimeout as sleep } from 'node:timers/promises'
import { printable } from '../domain/printable.ts'
import type { Access } from './access.ts'
import { type Sample, takeSample } from './samples.ts'
import { headline, ratesOf, view } from './view.ts'

export interface WatchRequest {
  urls: string[]
  access?: Access | undefined
  /** Null: as suits where it is printed to. */
  intervalSeconds: number | null
  json: boolean
}

export interface WatchOutput {
  write: (text: string) => void
  /** Columns of the terminal; null where none is printed to. */
  width: () => number | null
  /** Ends the watching. */
  signal: AbortSignal
}

const secondsBetween = { terminal: 1, lines: 10 }
/** Samples kept, for rates and the course of the lag. */
const keptMax = 120
const control = '\u001b['

/** Shows how the sync is until it is told to stop: a view that is drawn anew on a terminal, else a line now and then. */
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

/** Over what was drawn before, line by line, so that nothing flickers. */
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
