import { readFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { parse } from 'yaml'
import { failureNames } from '../../src/domain/errors.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { WorkMeter } from '../../src/domain/work-meter.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from '../api/recording-instance.ts'
import { anchorsOf, textOf } from './pages.ts'
import { holds, type Series, secondsOf } from './prometheus-rules.ts'

/** Evaluates docs/alerts.yml over simulated time with answers of `/metrics`. Each rule fires at the right time, and not earlier. */

interface Rule {
  alert: string
  expr: string
  for?: string
  labels: { severity: string }
  annotations: { summary: string; runbook_url: string }
}
const { groups } = parse(readFileSync(new URL('../../docs/alerts.yml', import.meta.url), 'utf8')) as {
  groups: { rules: Rule[] }[]
}
const rules = groups.flatMap((group) => group.rules)
/** Prometheus's default scrape interval. The durations of all rules are multiples of it. */
const everySeconds = 60
const rangesOf = ({ expr }: Rule): number[] => [...expr.matchAll(/\[(\w+)\]/g)].map(([, range]) => secondsOf(range))
/** By this time, each rule that is true at all has been true for its whole `for` and over its whole range. */
const longestSeconds = Math.max(...rules.map((rule) => secondsOf(rule.for) + Math.max(0, ...rangesOf(rule))))
/** The metrics that the rules use. An answer of `/metrics` has many more. */
const used = new Set(rules.flatMap(({ expr }) => expr.match(/\btandem_\w+/g) ?? []))

const healthy: Progress = {
  ...idleProgress,
  state: 'RUNNING',
  canCommit: true,
  canWrite: false,
  info: 'change event application',
  lagTimeSeconds: 1,
  collectionCopy: { estimatedTotalBytes: 100, estimatedCopiedBytes: 100 },
  mongosyncID: 'one',
  oplogSecondsRemaining: 86_400,
  oplogVisible: true,
  instances: { alive: 2, lost: 0 },
  differingDocuments: 0,
}
const copying = (copied: number): Progress => ({
  ...healthy,
  canCommit: false,
  info: 'collection copy',
  collectionCopy: { estimatedTotalBytes: 1_000_000, estimatedCopiedBytes: copied },
})
/** Returns the progress of an instance at a time in seconds, or null if the instance does not answer. */
type At = (seconds: number) => (Progress & { progressedAt?: number }) | null | 'connecting'

/** Returns the series that Prometheus has collected from the instances of one job up to a time. */
async function collected(instances: readonly At[], untilSeconds: number): Promise<Series[]> {
  const meter = new WorkMeter()
  const { api, instance } = apiUnderTest({ meter })
  const series = new Map<string, { labels: Record<string, string>; values: [at: number, value: number][] }>()
  const add = (name: string, labels: Record<string, string>, at: number, value: number): void => {
    const all = { __name__: name, job: 'tandem', ...labels }
    const key = JSON.stringify(all)
    if (!series.has(key)) series.set(key, { labels: all, values: [] })
    series.get(key)?.values.push([at, value])
  }
  for (let at = 0; at <= untilSeconds; at += everySeconds) {
    for (const [index, shown] of instances.entries()) {
      const progress = shown(at)
      add('up', { instance: String(index) }, at, Number(progress !== null))
      if (progress === null) continue
      instance.shown = progress === 'connecting' ? idleProgress : progress
      meter.progressedAt = (progress !== 'connecting' && progress.progressedAt) || at * 1_000
      for (const line of (await (await api.request('/metrics')).text()).split('\n')) {
        const [, name, labels = '', value] = /^(\w+)(?:\{(.*)\})? (\S+)$/.exec(line) ?? []
        if (name === undefined || !used.has(name)) continue
        const own = Object.fromEntries([...labels.matchAll(/(\w+)="([^"]*)"/g)].map(([, label, text]) => [label, text]))
        const shownValue = name === 'tandem_connected' && progress === 'connecting' ? 0 : Number(value)
        add(name, { ...own, instance: String(index) }, at, shownValue)
      }
    }
  }
  return [...series.values()]
}

/** Returns the alerts that fire at a time, because their expressions have been true for long enough. */
function firing(all: readonly Series[], untilSeconds: number): string[] {
  const fires = ({ expr, for: lasting }: Rule): boolean => {
    const since = untilSeconds - secondsOf(lasting)
    if (since < 0) return false
    for (let at = since; at <= untilSeconds; at += everySeconds) if (holds(expr, all, at).length === 0) return false
    return true
  }
  return rules.filter(fires).map(({ alert }) => alert)
}

test.each<[string, At[]]>([
  ['is healthy', [() => healthy]],
  ['is committed', [() => ({ ...healthy, state: 'COMMITTED', canWrite: true, mismatches: 0 })]],
  ['has not begun', [() => idleProgress]],
  ['copies', [(at) => copying(at)]],
  ['copies with two instances, of which one makes progress', [() => copying(5), (at) => copying(at)]],
])('no alert fires for a sync that %s', async (_what, instances) => {
  expect(firing(await collected(instances, longestSeconds), longestSeconds)).toEqual([])
})

test.each<[string, At[], number]>([
  ['TandemFailed', [() => ({ ...healthy, state: 'FAILED', failure: { error: 'LeaseLost', errorDescription: '' } })], 0],
  ['TandemDown', [() => healthy, () => null], 60],
  ['TandemDown', [(at) => (at < 600 ? healthy : null)], 660],
  ['TandemInstanceLost', [() => ({ ...healthy, instances: { alive: 1, lost: 1 } })], 60],
  ['TandemCopyStuck', [() => copying(5), () => copying(7)], 900],
  ['TandemMismatches', [() => ({ ...healthy, mismatches: 2 })], 0],
  ['TandemDifferingDocuments', [() => ({ ...healthy, differingDocuments: 1 })], 600],
  ['TandemOplogShort', [() => ({ ...healthy, oplogSecondsRemaining: 7_199 })], 300],
  ['TandemOplogNotVisible', [() => ({ ...healthy, oplogVisible: false })], 1_800],
  ['TandemPausedLong', [() => ({ ...healthy, state: 'PAUSED' })], 3_600],
  ['TandemLagging', [() => ({ ...healthy, canCommit: false, lagTimeSeconds: 61 })], 600],
  ['TandemNoProgress', [() => ({ ...healthy, canCommit: false, lagTimeSeconds: 61, progressedAt: 1 })], 300],
  ['TandemRetrying', [() => ({ ...healthy, retrying: { what: 'x', since: 'then' } })], 300],
  [
    'TandemBackedOff',
    [
      () => ({
        ...healthy,
        limits: {
          bytesPerSecond: null,
          readConcurrency: 4,
          writeConcurrency: 4,
          backedOff: { reason: 'x', since: 'then', writeConcurrency: 1 },
        },
      }),
    ],
    900,
  ],
  ['TandemDisconnected', [() => 'connecting'], 120],
])('%s is the only alert that fires, and it fires no earlier than expected (%#)', async (alert, instances, seconds) => {
  const all = await collected(instances, seconds)
  // A sync without progress also lags, so TandemLagging may fire too: its duration equals the duration and range of TandemNoProgress.
  expect(firing(all, seconds).filter((one) => alert !== 'TandemNoProgress' || one !== 'TandemLagging')).toEqual([alert])
  if (seconds > 0) expect(firing(all, seconds - everySeconds)).toEqual([])
})

test.each(['PAUSED', 'FAILED'] as const)('the alert for a short oplog also fires in %s', async (state) => {
  const short: Progress = { ...healthy, state, lagTimeSeconds: null, canCommit: false, oplogSecondsRemaining: 0 }
  expect(firing(await collected([() => short], 300), 300)).toContain('TandemOplogShort')
})

test('this file tests every rule, and every rule has a severity, a summary and a link to the documentation', () => {
  const source = readFileSync(new URL(import.meta.url), 'utf8')
  for (const rule of rules) {
    const { alert, labels, annotations } = rule
    for (const seconds of [secondsOf(rule.for), ...rangesOf(rule)]) expect(seconds % everySeconds).toBe(0)
    expect(source).toContain(`['${alert}'`.replace("['TandemBackedOff'", "'TandemBackedOff'"))
    expect(labels.severity).toMatch(/^(critical|warning)$/)
    expect(annotations.summary.length).toBeGreaterThan(20)
    const [page = '', anchor] = annotations.runbook_url.split('#')
    expect(page).toMatch(/^docs\/[a-z-]+\.md$/)
    if (anchor === '{{ $labels.error | toLower }}') {
      for (const name of failureNames) expect(anchorsOf(page)).toContain(name.toLowerCase())
    } else if (anchor !== undefined) expect(anchorsOf(page)).toContain(anchor)
    else expect(textOf(page)).not.toBe('')
  }
})
