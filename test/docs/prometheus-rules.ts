/**
 * Evaluates the part of PromQL that docs/alerts.yml uses
 * (https://prometheus.io/docs/prometheus/latest/querying/basics/): selectors, `changes(x[duration])`, `sum` and
 * `max by (…)`, comparisons with a number, and `and`. It throws for anything else, so a rule that it cannot evaluate
 * fails its test.
 */

export interface Series {
  labels: Record<string, string>
  /** The samples with their times in seconds, oldest first. */
  values: readonly (readonly [at: number, value: number])[]
}
interface Value {
  labels: Record<string, string>
  value: number
}

/** Prometheus ignores a sample that is older than this (its lookback). */
const lookbackSeconds = 300
const unitSeconds = { s: 1, m: 60, h: 3_600 }

const compares: Record<string, (one: number, other: number) => boolean> = {
  '==': (one, other) => one === other,
  '>': (one, other) => one > other,
  '<': (one, other) => one < other,
}

/** Returns the series for which the expression is true at a time. */
export function holds(expression: string, all: readonly Series[], at: number): Value[] {
  const [first = '', ...others] = expression.split(/\s+and\s+/)
  let found = comparison(first.trim(), all, at)
  for (const side of others) {
    const [, ignored, rest] = /^ignoring\((\w+)\)\s+(.*)$/.exec(side.trim()) ?? []
    const right = comparison(rest ?? side.trim(), all, at).map((one) => without(one, ignored))
    found = found.filter((one) => right.some((other) => sameLabels(without(one, ignored), other)))
  }
  return found
}

function without({ labels, value }: Value, ignored: string | undefined): Value {
  return { labels: Object.fromEntries(Object.entries(labels).filter(([name]) => name !== ignored)), value }
}

/** Converts a duration of PromQL to seconds. */
export function secondsOf(duration = '0s'): number {
  const [, count, unit] = /^(\d+)([smh])$/.exec(duration) ?? []
  if (count === undefined) throw new Error(`not a duration: ${duration}`)
  return Number(count) * unitSeconds[unit as keyof typeof unitSeconds]
}

function comparison(text: string, all: readonly Series[], at: number): Value[] {
  const [, inner, operator, number] = /^(.*\S)\s*(==|<|>)\s*(\d+)$/.exec(text) ?? []
  const compare = compares[operator ?? '']
  if (inner === undefined || !compare) throw new Error(`not a comparison: ${text}`)
  return aggregate(inner, all, at).filter(({ value }) => compare(value, Number(number)))
}

function aggregate(text: string, all: readonly Series[], at: number): Value[] {
  const [, kind, label, inner] = /^(sum|max) by \((\w+)\) \((.*)\)$/.exec(text) ?? []
  if (inner === undefined || label === undefined) return vector(text, all, at)
  const groups = new Map<string, number[]>()
  for (const { labels, value } of vector(inner, all, at)) {
    const key = labels[label] ?? ''
    groups.set(key, [...(groups.get(key) ?? []), value])
  }
  return [...groups].map(([key, values]) => ({
    labels: { [label]: key },
    value: kind === 'max' ? Math.max(...values) : values.reduce((sum, one) => sum + one, 0),
  }))
}

function vector(text: string, all: readonly Series[], at: number): Value[] {
  const [, ranged, duration] = /^changes\((.*)\[(\w+)\]\)$/.exec(text) ?? []
  return matching(ranged ?? text, all).flatMap(({ labels, values }) => {
    const within = values.filter(
      ([when]) => when <= at && when > at - (duration ? secondsOf(duration) : lookbackSeconds),
    )
    const newest = within.at(-1)
    if (!newest) return []
    const changes = within.filter(([, value], index) => index > 0 && value !== within[index - 1]?.[1]).length
    return [{ labels, value: duration ? changes : newest[1] }]
  })
}

function matching(selector: string, all: readonly Series[]): readonly Series[] {
  const [, name, conditions = ''] = /^(\w+)(?:\{(.*)\})?$/.exec(selector) ?? []
  if (name === undefined) throw new Error(`not a selector: ${selector}`)
  const wanted = conditions === '' ? [] : conditions.split(',').map((one) => /^\s*(\w+)="([^"]*)"\s*$/.exec(one))
  if (wanted.includes(null)) throw new Error(`not a label matcher: ${selector}`)
  return all.filter(
    ({ labels }) => labels['__name__'] === name && wanted.every((one) => labels[one?.[1] ?? ''] === one?.[2]),
  )
}

function sameLabels(one: Value, other: Value): boolean {
  const plain = ({ labels }: Value) =>
    JSON.stringify(
      Object.entries(labels)
        .filter(([name]) => name !== '__name__')
        .sort(),
    )
  return plain(one) === plain(other)
}
