import { stripVTControlCharacters } from 'node:util'
import type { Progress } from '../../src/domain/progress.ts'

/** Often enough to look alive; seldom enough not to flicker. Without a terminal: lines, once a second. */
const redrawMS = 80
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

/** The line that changes, and whether it stands on the screen as it is now. */
let live = ''
let shown = true
let drawnAt = 0
let drawnHead = ''

/** A line that stays. */
export function print(text = ''): void {
  out.write(`${terminal && live !== '' ? '\r\x1b[2K' : ''}${text}\n`)
  if (terminal && live !== '') draw()
}

export function heading(number: number, title: string, detail = ''): void {
  settle()
  print(`\n${bold(`${number}  ${title}`)}${detail === '' ? '' : `  ${dim(detail)}`}`)
}

export const step = (text: string): void => print(`   ${green('✓')} ${text}`)
export const strike = (text: string): void => print(`   ${red('✗')} ${text}`)
export const note = (text: string): void => print(`   ${dim('·')} ${text}`)

/** The one line that changes. A new `head` (what it is about) is shown at once. */
export function redraw(head: string, text: string): void {
  live = `   ${head.padEnd(10)} ${text}`
  shown = false
  const pause = terminal ? redrawMS : plainLineMS
  if (head !== drawnHead || performance.now() - drawnAt >= pause) draw()
  drawnHead = head
}

/** Leaves the changing line as it stands. */
export function settle(): void {
  if (!shown) draw()
  if (terminal && live !== '') out.write('\n')
  live = ''
  drawnHead = ''
}

function draw(): void {
  out.write(terminal ? `\r\x1b[2K${fitting(live, (out.columns ?? 120) - 1)}` : `${live}\n`)
  shown = true
  drawnAt = performance.now()
}

/** A line that does not fit loses its colours too: escape sequences must not be cut. */
function fitting(text: string, width: number): string {
  const plain = stripVTControlCharacters(text)
  return plain.length <= width ? text : plain.slice(0, width)
}

/** The progress endpoint's answer and the writer's rate on one line. */
export function drawProgress(progress: Progress, events: number, operationsPerSecond: number): void {
  const barWidth = (out.columns ?? narrowColumns) < narrowColumns ? 12 : 28
  const share = shareOf(progress)
  const filled = Math.floor(share * barWidth)
  const bar = `${cyan('█'.repeat(filled))}${dim('░'.repeat(barWidth - filled))}`
  const lag = progress.lagTimeSeconds === null ? '–' : `${progress.lagTimeSeconds} s`
  // In the order of interest: a narrow terminal cuts the end off.
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
  // Before the copy the contract has 0 of 1 bytes.
  if (progress.collectionCopy?.estimatedTotalBytes === 1) return 'preparing'
  return progress.info === 'collection copy' ? 'copying' : 'following'
}

/** Rows of columns, each as wide as its widest cell; those named in `right` are aligned there. */
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
