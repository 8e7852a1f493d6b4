import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

/** The files for Prometheus and Grafana use only existing metrics, and every metric that is not deprecated. */

interface Dashboard {
  templating: { list: { name: string }[] }
  annotations: { list: { name: string; expr: string }[] }
  panels: { targets: { expr: string }[] }[]
}

const text = (name: string): string => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8')
const namesIn = (name: string): Set<string> =>
  new Set((text(name).match(/\btandem_[a-z_]+[a-z]/g) ?? []).map((one) => one.replace(/_bucket$/, '')))
const documented = namesIn('metrics.md')
const deprecated = new Set([...text('metrics.md').matchAll(/^\| `(\w+).*\| deprecated/gm)].map(([, name]) => name))

test.each(['alerts.yml', 'grafana.json'])('%s uses only metrics that docs/metrics.md describes', (name) => {
  const used = [...namesIn(name)]
  expect(used.length).toBeGreaterThan(5)
  expect(used.filter((metric) => !documented.has(metric))).toEqual([])
})

test('every metric is used by the Grafana dashboard or by an alert', () => {
  const shown = new Set([...namesIn('grafana.json'), ...namesIn('alerts.yml')])
  expect([...documented].filter((metric) => !shown.has(metric))).toEqual([...deprecated])
})

test('the dashboard uses no deprecated metric, shows one instance or all, and marks commits and failures', () => {
  expect([...deprecated]).toEqual(['tandem_info'])
  expect([...namesIn('grafana.json'), ...namesIn('alerts.yml')].filter((name) => deprecated.has(name))).toEqual([])
  const { templating, annotations, panels } = JSON.parse(text('grafana.json')) as Dashboard
  expect(templating.list.map(({ name }) => name)).toEqual(['datasource', 'job', 'instance'])
  expect(annotations.list.map(({ name }) => name)).toEqual(['Commit', 'Failure'])
  const expressions = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr))
  for (const expr of [...expressions, ...annotations.list.map((one) => one.expr)]) {
    const selectors = expr.match(/\b(?:tandem|process|nodejs)_\w+(?:\{[^}]*\})?/g) ?? []
    expect(selectors.length).toBeGreaterThan(0)
    for (const one of selectors) expect(one).toContain('job=~"$job",instance=~"$instance"')
  }
})
