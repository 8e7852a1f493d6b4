/** Renders a table for a terminal. Columns are as wide as their content; some shrink if the terminal is too narrow. */

export interface Column {
  title: string
  /** Numbers are right-aligned, so that their digits line up. */
  align: 'left' | 'right'
  /** The width, in terminal cells, to which the column may shrink. Without this field, it never shrinks. */
  cellsMin?: number
}

const gap = '  '

export function renderTable(columns: readonly Column[], rows: readonly (readonly string[])[], width: number): string[] {
  const lines = [columns.map(({ title }) => title), ...rows]
  const widths = fitToWidth(
    columns.map((_, at) => Math.max(...lines.map((cells) => widthOf(cells[at] ?? '')))),
    columns,
    width,
  )
  return lines.map((cells) =>
    columns
      .map(({ align }, at) => {
        const text = truncate(cells[at] ?? '', widths[at] as number)
        const padding = ' '.repeat((widths[at] as number) - widthOf(text))
        return align === 'left' ? text + padding : padding + text
      })
      .join(gap)
      .trimEnd(),
  )
}

/** Shrinks the widest shrinkable column, cell by cell, so that a long name does not displace the other columns. */
function fitToWidth(natural: readonly number[], columns: readonly Column[], width: number): number[] {
  const widths = [...natural]
  let excess = widths.reduce((sum, each) => sum + each, gap.length * (widths.length - 1)) - width
  for (; excess > 0; excess -= 1) {
    let widest = -1
    for (const [at, { cellsMin }] of columns.entries()) {
      const canShrink = cellsMin !== undefined && (widths[at] as number) > cellsMin
      if (canShrink && (widths[at] as number) > (widths[widest] ?? 0)) widest = at
    }
    if (widest === -1) break
    widths[widest] = (widths[widest] as number) - 1
  }
  return widths
}

export function truncate(text: string, cells: number): string {
  if (widthOf(text) <= cells) return text
  let [kept, used] = ['', 0]
  for (const { segment } of graphemes.segment(text)) {
    used += cellsOf(segment)
    if (used > cells - 1) break
    kept += segment
  }
  return `${kept}…`
}

/**
 * Returns the number of terminal cells that a text takes. This may differ from the text's length: an ideograph or emoji
 * takes two cells, a combining accent none.
 */
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
