import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'

/** What Prometheus and Grafana are given asks for metrics that there are, and every metric is shown somewhere. */

const text = (name: string): string => readFileSync(new URL(`../../docs/${name}`, import.meta.url), 'utf8')
const namesIn = (name: string): Set<string> => new Set(text(name).match(/\btandem_[a-z_]+[a-z]/g) ?? [])
const documented = namesIn('metrics.md')

test.each(['alerts.yml', 'grafana.json'])('%s asks for metrics that docs/metrics.md has', (name) => {
  const asked = [...namesIn(name)]
  expect(asked.length).toBeGreaterThan(5)
  expect(asked.filter((metric) => !documented.has(metric))).toEqual([])
})

test('every metric is shown by the dashboard for Grafana, or is what an alert is about', () => {
  const shown = new Set([...namesIn('grafana.json'), ...namesIn('alerts.yml')])
  expect([...documented].filter((metric) => !shown.has(metric))).toEqual([])
})
