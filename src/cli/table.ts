/** A small table for a terminal: columns side by side, as wide as what they hold, cut where the line ends. */

export interface Column {
  title: string
  /** Numbers are compared by their last digits. */
  align: 'left' | 'right'
  /** Where the line is too narrow, this column may be cut down to so many cells; without it never. */
  cellsMin?: number
}

const gap = '  '

export function renderTable(columns: readonly Column[], rows: readonly (readonly string[])[], width: number): string[] {
  const lines = [columns.map(({ title }) => title), ...rows]
  const widths = sharedOut(
    columns.map((_, at) => Math.max(...lines.map((cells) => widthOf(cells[at] ?? '')))),
    columns,
    width,
  )
  return lines.map((cells) =>
    columns
      .map(({ align }, at) => {
        const text = cut(cells[at] ?? '', widths[at] as number)
        const padding = ' '.repeat((widths[at] as number) - widthOf(text))
        return align === 'left' ? text + padding : padding + text
      })
      .join(gap)
      .trimEnd(),
  )
}

/** Takes from the widest column that gives, cell by cell, so that a long name does not starve the others. */
function sharedOut(natural: readonly number[], columns: readonly Column[], width: number): number[] {
  const widths = [...natural]
  let excess = widths.reduce((sum, each) => sum + each, gap.length * (widths.length - 1)) - width
  for (; excess > 0; excess -= 1) {
    let widest = -1
    for (const [at, { cellsMin }] of columns.entries()) {
      const gives = cellsMin !== undefined && (widths[at] as number) > cellsMin
      if (gives && (widths[at] as number) > (widths[widest] ?? 0)) widest = at
    }
    if (widest === -1) break
    widths[widest] = (widths[widest] as number) - 1
  }
  return widths
}

export function cut(text: string, cells: number): string {
  if (widthOf(text) <= cells) return text
  let [kept, used] = ['', 0]
  for (const { segment } of graphemes.segment(text)) {
    used += cellsOf(segment)
    if (used > cells - 1) break
    kept += segment
  }
  return `${kept}…`
}

/** Cells that a terminal gives the text, which is not its length: an ideograph or emoji takes two, an accent none. */
export function widthOf(text: string): number {
  let width = 0
  for (const { segment } of graphemes.segment(text)) width += cellsOf(segment)
  return width
}

const graphemes = new Intl.Segmenter('en', { granularity: 'grapheme' })
const wide =
  /[\p{Script=Han}\p{Script=Hiragana}\p{Script=Katakana}\p{Script=Hangul}\p{Emoji_Presentation}\u3000-\u303e\uff01-\uff60\uffe0-\uffe6]|\ufe0f/u
const halfWidth = /^[\uff61-\uffdc]/

function cellsOf(grapheme: string): number {
  if (/^[\p{M}\p{Cf}]*$/u.test(grapheme)) return 0
  return wide.test(grapheme) && !halfWidth.test(grapheme) ? 2 : 1
}
