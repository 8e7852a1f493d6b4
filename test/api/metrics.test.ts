import { readFileSync } from 'node:fs'
import { describe, expect, test } from 'vitest'
import { RefusedError } from '../../src/domain/errors.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { idleProgress } from '../../src/session/report-progress.ts'
import { apiUnderTest } from './recording-instance.ts'

const side = {
  estimatedDocumentCount: 10,
  hashedDocumentCount: 7,
  lagTimeSeconds: 0,
  phase: 'initial hashing',
  scannedCollectionCount: 0,
  totalCollectionCount: 1,
}
const running: Progress = {
  ...idleProgress,
  state: 'RUNNING',
  canCommit: true,
  canWrite: false,
  info: 'change event application',
  lagTimeSeconds: 2,
  totalEventsApplied: 40,
  collectionCopy: { estimatedTotalBytes: 100, estimatedCopiedBytes: 60 },
  mongosyncID: 'shard "A"\\',
  coordinatorID: 'shard "A"\\',
  verification: { source: side, destination: { ...side, hashedDocumentCount: 6 } },
  estimatedOplogTimeRemaining: 'less than 15 minutes',
  oplogSecondsRemaining: 600,
  oplogVisible: true,
  instances: { alive: 2, lost: 1 },
  mismatches: 3,
  differingDocuments: 4,
  warnings: ['the oplog is short: mongodb://user:canary@host/'],
  convergingCollections: 5,
  retrying: { what: 'reading mongodb://user:canary@host/', since: '2026-11-21T00:00:00Z' },
  limits: {
    bytesPerSecond: null,
    readConcurrency: 4,
    writeConcurrency: 4,
    backedOff: { reason: 'canary', since: '2026-11-21T00:00:00Z', writeConcurrency: 1 },
  },
}

async function metrics(progress: () => Progress) {
  const { api, instance } = apiUnderTest()
  instance.progress = progress
  const response = await api.request('/metrics')
  const text = await response.text()
  const samples = new Map(
    text
      .split('\n')
      .filter((line) => line !== '' && !line.startsWith('#'))
      .map((line): [string, number] => [
        line.slice(0, line.lastIndexOf(' ')),
        Number(line.slice(line.lastIndexOf(' '))),
      ]),
  )
  return { response, text, samples }
}

describe('GET /metrics', () => {
  test('has the figures of progress in base units, each with HELP and TYPE', async () => {
    const { response, text, samples } = await metrics(() => running)
    expect(response.status).toBe(200)
    expect(response.headers.get('Content-Type')).toBe('text/plain; version=0.0.4; charset=utf-8')
    expect(Object.fromEntries(samples)).toMatchObject({
      'tandem_info{version="1.2.3",mongosync_id="shard \\"A\\"\\\\"}': 1,
      tandem_connected: 1,
      'tandem_state{state="RUNNING"}': 1,
      'tandem_state{state="FAILED"}': 0,
      tandem_can_commit: 1,
      tandem_can_write: 0,
      tandem_lag_seconds: 2,
      tandem_events_applied_total: 40,
      tandem_copy_total_bytes: 100,
      tandem_copy_copied_bytes: 60,
      'tandem_verification_documents{cluster="source"}': 10,
      'tandem_verification_hashed_documents{cluster="destination"}': 6,
      tandem_oplog_remaining_seconds: 600,
      tandem_oplog_visible: 1,
      tandem_copying: 0,
      tandem_converging_collections: 5,
      'tandem_instances{status="alive"}': 2,
      'tandem_instances{status="lost"}': 1,
      tandem_mismatches: 3,
      tandem_differing_documents: 4,
      tandem_warnings: 1,
      tandem_retrying: 1,
      tandem_backed_off: 1,
    })
    for (const name of new Set([...samples.keys()].map((key) => key.replace(/\{.*/, '')))) {
      expect(text).toMatch(new RegExp(`^# HELP ${name} \\S.*\\n# TYPE ${name} (gauge|counter)\\n${name}[ {]`, 'm'))
    }
    expect(text.endsWith('\n')).toBe(true)
    expect(text).not.toContain('canary')
  })

  test('omits unknown figures', async () => {
    const { samples } = await metrics(() => idleProgress)
    expect(samples.get('tandem_state{state="IDLE"}')).toBe(1)
    expect(
      [...samples.keys()].filter((key) => /lag|copy|converging|oplog|verification|events|can_write/.test(key)),
    ).toEqual([])
  })

  test('answers tandem_connected 0 while the instance is still connecting', async () => {
    const { response, samples } = await metrics(() => {
      throw new RefusedError('ClusterUnreachable', 'connecting')
    })
    expect(response.status).toBe(200)
    expect(Object.fromEntries(samples)).toEqual({ 'tandem_info{version="1.2.3"}': 1, tandem_connected: 0 })
  })

  test('every metric is documented, and the alerts use only existing metrics', async () => {
    const { samples } = await metrics(() => running)
    const names = new Set([...samples.keys()].map((key) => key.replace(/\{.*/, '')))
    const read = (file: string): string => readFileSync(new URL(`../../docs/${file}`, import.meta.url), 'utf8')
    const documented = new Set([...read('metrics.md').matchAll(/^\| `(tandem_\w+)/gm)].map(([, name]) => name))
    expect(documented).toEqual(names)
    const used = new Set([...read('alerts.yml').matchAll(/tandem_\w+/g)].map(([name]) => name))
    expect(used.size).toBeGreaterThan(4)
    for (const name of used) expect(names).toContain(name)
  })
})
