import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

/** The files for Prometheus and Grafana use only existing metrics, and use every one of them. */

const text = (name: string): string => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8')
const namesIn = (name: string): Set<string> => new Set(text(name).match(/\btandem_[a-z_]+[a-z]/g) ?? [])
const documented = namesIn('metrics.md')

test.each(['alerts.yml', 'grafana.json'])('%s uses only metrics that docs/metrics.md describes', (name) => {
  const used = [...namesIn(name)]
  expect(used.length).toBeGreaterThan(5)
  expect(used.filter((metric) => !documented.has(metric))).toEqual([])
})

test('the Grafana dashboard or an alert uses every metric', () => {
  const shown = new Set([...namesIn('grafana.json'), ...namesIn('alerts.yml')])
  expect([...documented].filter((metric) => !shown.has(metric))).toEqual([])
})
