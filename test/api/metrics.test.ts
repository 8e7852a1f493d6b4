import { readFileSync } from 'node:fs'
import process from 'node:process'
import { MongoServerError } from 'mongodb'
import { describe, expect, test } from 'vitest'
import { addCircumstances } from '../../src/domain/circumstances.ts'
import { FatalError, RefusedError, toFailure } from '../../src/domain/errors.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { WorkMeter } from '../../src/domain/work-meter.ts'
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
  indexBuilding: { indexesBuilt: 1, totalIndexesToBuild: 4, collectionsFinished: 0, collectionsTotal: 1 },
  source: { pingLatencyMs: 3 },
  destination: { pingLatencyMs: -1 },
  retrying: { what: 'reading mongodb://user:canary@host/', since: '2026-11-21T00:00:00Z' },
  limits: {
    bytesPerSecond: null,
    readConcurrency: 4,
    writeConcurrency: 4,
    backedOff: { reason: 'canary', since: '2026-11-21T00:00:00Z', writeConcurrency: 1 },
  },
}

/** Returns a meter with some work of each kind. */
function worked(): WorkMeter {
  const meter = new WorkMeter()
  meter.copied(5, 500)
  meter.copiedSegments = 2
  meter.read([Buffer.alloc(10), Buffer.alloc(20)])
  meter.definitionEvents = 1
  meter.retries = 3
  for (const ms of [0.5, 3, 70_000]) meter.durations.copyRead.add(ms)
  meter.flushed(0, 15)
  meter.flushed(1, 20)
  meter.watch({ depths: [7, 8] })
  return meter
}

async function metrics(progress: () => Progress, meter?: WorkMeter) {
  const { api, instance } = apiUnderTest({ meter })
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

/** Returns the names of metrics, without the suffixes of histograms. */
function namesOf(samples: Map<string, number>): Set<string> {
  const names = [...samples.keys()].map((key) => key.replace(/\{.*/, ''))
  const histograms = new Set(names.filter((name) => name.endsWith('_bucket')).map((name) => name.slice(0, -7)))
  const familyOf = (name: string): string => {
    const family = name.replace(/_(bucket|sum|count)$/, '')
    return histograms.has(family) ? family : name
  }
  return new Set(names.map(familyOf))
}

describe('GET /metrics', () => {
  test('has the figures of progress in base units, each with HELP and TYPE', async () => {
    const before = Date.now()
    const { response, text, samples } = await metrics(() => running, worked())
    expect(response.status).toBe(200)
    expect(response.headers.get('Content-Type')).toBe('text/plain; version=0.0.4; charset=utf-8')
    expect(Object.fromEntries(samples)).toMatchObject({
      [`tandem_build_info{version="1.2.3",node_version="${process.versions.node}"}`]: 1,
      'tandem_instance_info{mongosync_id="shard \\"A\\"\\\\"}': 1,
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
      'tandem_verification_lag_seconds{cluster="source"}': 0,
      tandem_indexes_built: 1,
      tandem_indexes_to_build: 4,
      'tandem_cluster_reachable{cluster="source"}': 1,
      'tandem_cluster_reachable{cluster="destination"}': 0,
      tandem_copied_documents_total: 5,
      tandem_copied_bytes_total: 500,
      tandem_copied_segments_total: 2,
      tandem_stream_events_total: 2,
      tandem_stream_bytes_total: 30,
      tandem_definition_events_total: 1,
      tandem_retries_total: 3,
      'tandem_lane_documents{lane="0"}': 7,
      'tandem_lane_documents{lane="1"}': 8,
      'tandem_lane_flush_seconds_count{lane="1"}': 1,
      'tandem_lane_flush_seconds_sum{lane="1"}': 0.02,
      'tandem_operation_seconds_bucket{operation="copy_read",le="0.001"}': 1,
      'tandem_operation_seconds_bucket{operation="copy_read",le="0.005"}': 2,
      'tandem_operation_seconds_bucket{operation="copy_read",le="60"}': 2,
      'tandem_operation_seconds_bucket{operation="copy_read",le="+Inf"}': 3,
      'tandem_operation_seconds_count{operation="copy_read"}': 3,
    })
    const progressedAt = Number(samples.get('tandem_last_progress_timestamp_seconds')) * 1_000
    expect(progressedAt).toBeGreaterThanOrEqual(before)
    expect(progressedAt).toBeLessThanOrEqual(Date.now())
    for (const name of namesOf(samples)) {
      const type = '(gauge|counter|histogram)'
      expect(text).toMatch(new RegExp(`^# HELP ${name} \\S.*\\n# TYPE ${name} ${type}\\n${name}(_bucket)?[ {]`, 'm'))
    }
    expect(text.endsWith('\n')).toBe(true)
    expect(text).not.toContain('canary')
  })

  test("has the same figures under the names of mongosync's metrics and in their units", async () => {
    const { samples } = await metrics(() => running, worked())
    expect(Object.fromEntries(samples)).toMatchObject({
      mongosync_lag_time: 2,
      mongosync_retry_count: 3,
      mongosync_src_unavailable: 0,
      mongosync_dst_unavailable: 1,
      mongosync_collection_copy_copied_docs_count: 5,
      mongosync_collection_copy_copied_bytes_count: 500,
      mongosync_collection_copy_partitions_completed_count: 2,
      'mongosync_collection_copy_source_read_op_duration_bucket{le="5"}': 2,
      mongosync_collection_copy_source_read_op_duration_sum: 70_003.5,
      mongosync_cea_change_stream_reader_events_read: 2,
      mongosync_cea_change_stream_reader_bytes_read: 30,
      mongosync_cea_total_events_applied: 40,
      mongosync_cea_total_ddl_events_applied: 1,
      verifier_auditor_num_docs_hashed: 13,
      verifier_auditor_estimated_docs_count: 20,
    })
  })

  test('the names of metrics, except those of mongosync, follow Prometheus: only counters end in _total, and no unit is abbreviated', async () => {
    const { text } = await metrics(() => running, worked())
    const types = [...text.matchAll(/^# TYPE (\w+) (\w+)$/gm)].map(([, name = '', type = '']) => ({ name, type }))
    const conventional = types.filter(({ name }) => !/^(mongosync|verifier)_/.test(name))
    expect(conventional.length).toBeGreaterThan(60)
    for (const { name, type } of conventional) {
      expect(`${name} ${/_total$/.test(name)}`).toBe(`${name} ${type === 'counter'}`)
      expect(name).toMatch(/^[a-z][a-z0-9_]*$/)
      expect(name).not.toMatch(/_(ms|milliseconds|kb|mb|secs?|count|sum|bucket)(_|$)/)
    }
  })

  test('names the failure while the instance is FAILED', async () => {
    const failure = { error: 'DuplicateKey', errorDescription: 'canary' } as const
    const { samples, text } = await metrics(() => ({ ...running, state: 'FAILED', failure }))
    expect(samples.get('tandem_failure{error="DuplicateKey"}')).toBe(1)
    expect(text).not.toContain('canary')
    const healthy = await metrics(() => running)
    expect([...healthy.samples.keys()].filter((key) => key.includes('failure'))).toEqual([])
  })

  test('names the cluster and the server error of a failure, but not the text of the error', async () => {
    const cause = new MongoServerError({ message: 'canary', code: 13, codeName: 'Unauthorized' })
    addCircumstances(cause, { cluster: 'cluster1', command: 'find', namespace: 'canary.things' })
    const failure = toFailure(new FatalError('MissingPrivileges', 'canary', { cause }))
    const { samples, text } = await metrics(() => ({ ...running, state: 'FAILED', failure }))
    const labels = 'error="MissingPrivileges",mongodb_cluster="cluster1",code_name="Unauthorized"'
    expect(samples.get(`tandem_failure{${labels}}`)).toBe(1)
    expect(text).not.toContain('canary')
  })

  test('has the metrics of the process and of the event loop', async () => {
    const { samples } = await metrics(() => running)
    for (const name of ['process_cpu_seconds_total', 'process_start_time_seconds', 'nodejs_eventloop_lag_p99_seconds'])
      expect(samples.get(name)).toEqual(expect.any(Number))
    expect(samples.get('process_resident_memory_bytes')).toBeGreaterThan(1_000_000)
  })

  test('omits unknown figures', async () => {
    const { samples } = await metrics(() => idleProgress)
    expect(samples.get('tandem_state{state="IDLE"}')).toBe(1)
    expect(
      [...samples.keys()].filter((key) =>
        /^tandem_(lag_|copy_|converging|oplog|verification|events|can_write|last_progress|lane|cluster|indexes)/.test(
          key,
        ),
      ),
    ).toEqual([])
  })

  test('answers tandem_connected 0 while the instance is still connecting', async () => {
    const { response, samples } = await metrics(() => {
      throw new RefusedError('ClusterUnreachable', 'connecting')
    })
    expect(response.status).toBe(200)
    const ofTandem = [...samples].filter(([name]) => !/^(process|nodejs)_/.test(name))
    expect(Object.fromEntries(ofTandem)).toEqual({
      [`tandem_build_info{version="1.2.3",node_version="${process.versions.node}"}`]: 1,
      'tandem_info{version="1.2.3"}': 1,
      tandem_connected: 0,
    })
  })

  test('every metric is documented, and the alerts use only existing metrics', async () => {
    const failed = await metrics(
      () => ({ ...running, failure: { error: 'LeaseLost', errorDescription: '' } }),
      worked(),
    )
    const names = new Set([...namesOf(failed.samples)].filter((name) => !/^(process|nodejs)_/.test(name)))
    const read = (file: string): string => readFileSync(new URL(`../../docs/${file}`, import.meta.url), 'utf8')
    const documented = new Set(
      [...read('metrics.md').matchAll(/^\| `((?:tandem|mongosync|verifier)_\w+)/gm)].map(([, name]) => name),
    )
    expect(documented).toEqual(names)
    const used = new Set([...read('alerts.yml').matchAll(/tandem_\w+/g)].map(([name]) => name))
    expect(used.size).toBeGreaterThan(4)
    for (const name of used) expect(names).toContain(name)
  })
})
