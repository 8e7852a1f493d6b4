import { stripVTControlCharacters } from 'node:util'
import type { Progress } from '../../src/domain/progress.ts'

/** Redraw interval on a terminal: short enough for smooth updates and long enough to avoid flicker. */
const redrawMS = 80
/** Interval between printed lines if the output is not a terminal. */
const plainLineMS = 1_000
const narrowColumns = 110

const out = process.stdout
const terminal = out.isTTY === true
const coloured = terminal && !process.env['NO_COLOR']

const paint = (code: number) => (text: string) => (coloured ? `\x1b[${code}m${text}\x1b[0m` : text)
export const bold = paint(1)
export const dim = paint(2)
export const red = paint(31)
export const green = paint(32)
const yellow = paint(33)
const cyan = paint(36)

/** The line that is redrawn in place, and whether the screen shows its current text. */
let liveLine = ''
let shown = true
let drawnAt = 0
let drawnHead = ''

/** Prints a permanent line. */
export function print(text = ''): void {
  out.write(`${terminal && liveLine !== '' ? '\r\x1b[2K' : ''}${text}\n`)
  if (terminal && liveLine !== '') draw()
}

export function heading(number: number, title: string, detail = ''): void {
  finishLine()
  print(`\n${bold(`${number}  ${title}`)}${detail === '' ? '' : `  ${dim(detail)}`}`)
}

export const step = (text: string): void => print(`   ${green('✓')} ${text}`)
export const failed = (text: string): void => print(`   ${red('✗')} ${text}`)
export const note = (text: string): void => print(`   ${dim('·')} ${text}`)

/** Replaces the live line. A line with a new `head` (its subject) is shown at once, other lines at most once per interval. */
export function redraw(head: string, text: string): void {
  liveLine = `   ${head.padEnd(10)} ${text}`
  shown = false
  const pause = terminal ? redrawMS : plainLineMS
  if (head !== drawnHead || performance.now() - drawnAt >= pause) draw()
  drawnHead = head
}

/** Makes the live line permanent with its current text. */
export function finishLine(): void {
  if (!shown) draw()
  if (terminal && liveLine !== '') out.write('\n')
  liveLine = ''
  drawnHead = ''
}

function draw(): void {
  out.write(terminal ? `\r\x1b[2K${truncated(liveLine, (out.columns ?? 120) - 1)}` : `${liveLine}\n`)
  shown = true
  drawnAt = performance.now()
}

/** Truncates a line to the width. A truncated line also loses its colours, because an escape sequence must not be cut. */
function truncated(text: string, width: number): string {
  const plain = stripVTControlCharacters(text)
  return plain.length <= width ? text : plain.slice(0, width)
}

/** Shows the progress endpoint's answer and the writer's rate on one line. */
export function drawProgress(progress: Progress, events: number, operationsPerSecond: number): void {
  const barWidth = (out.columns ?? narrowColumns) < narrowColumns ? 12 : 28
  const share = shareOf(progress)
  const filled = Math.floor(share * barWidth)
  const bar = `${cyan('█'.repeat(filled))}${dim('░'.repeat(barWidth - filled))}`
  const lag = progress.lagTimeSeconds === null ? '–' : `${progress.lagTimeSeconds} s`
  // The most interesting parts come first, because a narrow terminal truncates the line.
  const parts = [
    percent(share).padStart(7),
    `writer ${count(operationsPerSecond)}/s`,
    `lag ${lag}`,
    `${count(events)} events`,
    megabytes(progress.collectionCopy?.estimatedCopiedBytes ?? 0),
    ...(progress.retrying ? [yellow(`retrying: ${progress.retrying.what}`)] : []),
  ]
  redraw(phaseOf(progress), `${bar} ${parts.join(dim(' │ '))}`)
}

export function shareOf({ collectionCopy }: Progress): number {
  return collectionCopy ? collectionCopy.estimatedCopiedBytes / collectionCopy.estimatedTotalBytes : 0
}

function phaseOf(progress: Progress): string {
  if (progress.state !== 'RUNNING') return progress.state.toLowerCase()
  // Before the copy, the API reports 0 of 1 bytes.
  if (progress.collectionCopy?.estimatedTotalBytes === 1) return 'preparing'
  return progress.info === 'collection copy' ? 'copying' : 'following'
}

/**
 * Prints rows of cells. A column is as wide as its widest cell. The columns whose indexes are in `right` are aligned to
 * the right.
 */
export function table(rows: readonly (readonly string[])[], right: readonly number[] = []): void {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0)))
  for (const row of rows) {
    const cells = row.map((cell, column) => {
      const width = widths[column] as number
      return right.includes(column) ? cell.padStart(width) : cell.padEnd(width)
    })
    print(`   ${cells.join('   ').trimEnd()}`)
  }
}

export const count = (value: number): string => value.toLocaleString('en-US')
export const megabytes = (bytes: number): string => `${(bytes / 1e6).toFixed(1)} MB`
export const percent = (share: number): string => `${(share * 100).toFixed(1)} %`
export const seconds = (milliseconds: number): string => `${(milliseconds / 1000).toFixed(2)} s`
