export interface Measured {
  figures: Record<string, number>
  /** One sentence for each missed target; empty if all targets are reached. */
  misses: string[]
}

/**
 * `verify` measures the command `tandem verify`. `verification` measures the embedded verifier during a sync, and `shared`
 * its first pass with two instances.
 */
export const sections = [
  ...(['copy', 'burst', 'hot', 'lag', 'verify', 'verification', 'cutover', 'memory'] as const),
  ...([
    'collections',
    'empty',
    'indexes',
    'builds',
    'instances',
    'ddl',
    'shared',
    'secondaries',
    'dashboards',
    'converge',
    'start',
    'neighbours',
    'directions',
    'sharded',
  ] as const),
]
export type Section = (typeof sections)[number]

/** The sections in which everything that is compared with tandem reaches the clusters through the same link. */
export const linkedSections: ReadonlySet<Section> = new Set([
  ...(['copy', 'burst', 'hot', 'lag', 'verify', 'verification', 'cutover', 'collections', 'start'] as const),
  'shared',
])

/** The measurement of one case. The printed table has one column for it. */
export interface Row extends Measured {
  section: Section
  name: string
}

type Target = { atLeast: number } | { atMost: number }

/** Describes the targets that the figures miss. A figure that could not be measured is not a miss. */
export function missesOf(figures: Record<string, number>, targets: Record<string, Target>): string[] {
  return Object.entries(targets).flatMap(([name, target]) => {
    const value = figures[name] ?? Number.NaN
    if ('atLeast' in target) return value < target.atLeast ? [`MISSED ${name}: at least ${target.atLeast} wanted`] : []
    return value > target.atMost ? [`MISSED ${name}: at most ${target.atMost} wanted`] : []
  })
}

/**
 * Formats one table for each section. A table has a line for each figure and a column for each `Row`, because there are
 * many figures and few cases.
 */
export function tables(rows: Row[]): string {
  const sections = [...new Set(rows.map(({ section }) => section))]
  return sections
    .map((section) =>
      table(
        section,
        rows.filter((row) => row.section === section),
      ),
    )
    .join('')
}

function table(section: string, rows: Row[]): string {
  const names = [...new Set(rows.flatMap(({ figures }) => Object.keys(figures)))]
  const lines = [
    [section, ...rows.map(({ name }) => name)],
    ...names.map((name) => [name, ...rows.map(({ figures }) => format(name, figures[name]))]),
    ['verdict', ...rows.map(({ misses }) => misses[0]?.split(' ')[0] ?? 'ok')],
  ]
  const widths = (lines[0] as string[]).map((_, column) =>
    Math.max(...lines.map((line) => (line[column] ?? '').length)),
  )
  const text = lines.map((line) =>
    line
      .map((cell, column) => (column === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[column] ?? 0)))
      .join('  '),
  )
  text.splice(1, 0, '-'.repeat((text[0] ?? '').length))
  const missed = rows.flatMap(({ name, misses }) => misses.map((miss) => `${name}: ${miss}`))
  return `\n${[...text, ...missed].join('\n')}\n`
}

function format(name: string, value: number | undefined): string {
  if (value === undefined || Number.isNaN(value)) return '-'
  if (name.startsWith('ratio')) return `${value.toFixed(2)} x`
  if (Number.isInteger(value) || Math.abs(value) >= 1000) return Math.round(value).toLocaleString('en')
  return value.toFixed(Math.abs(value) >= 100 ? 0 : 2)
}
