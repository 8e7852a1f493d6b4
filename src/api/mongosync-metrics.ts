import type { Progress } from '../domain/progress.ts'
import type { WorkMeter } from '../domain/work-meter.ts'
import type { MetricSet } from './metric-set.ts'

/**
 * tandem's figures under the names and in the units of mongosync's metrics, so that a dashboard or an alert for
 * mongosync also works with tandem. mongosync's manual does not list its metrics; the names, types and units are those
 * that MongoDB's Mongosync Insights 0.9.0.16 reads (github.com/mongodb/support-tools,
 * migration/mongosync_insights/lib/mongosync_metrics.json). Metrics of parts that tandem does not have are absent, and
 * so is `mongosync_phase`, whose numbers are not documented.
 */
export function addMongosyncMetrics(set: MetricSet, progress: Progress, meter: WorkMeter): void {
  const { durations } = meter
  const milliseconds = (name: string, help: string, of: keyof typeof durations): void =>
    set.histogram(name, help, 1, { labels: {}, durations: durations[of] })
  const unavailable = (ping: { pingLatencyMs: number } | undefined): number | null =>
    ping === undefined ? null : Number(ping.pingLatencyMs < 0)

  set.gauge('mongosync_lag_time', 'Seconds, as tandem_lag_seconds.', progress.lagTimeSeconds)
  set.gauge('mongosync_retry_count', 'As tandem_retries_total.', meter.retries)
  milliseconds('mongosync_src_ping_latency', 'Milliseconds of the pings of the source.', 'sourcePing')
  milliseconds('mongosync_dst_ping_latency', 'Milliseconds of the pings of the destination.', 'destinationPing')
  set.gauge('mongosync_src_unavailable', 'Whether the last ping of the source failed.', unavailable(progress.source))
  set.gauge(
    'mongosync_dst_unavailable',
    'Whether the last ping of the destination failed.',
    unavailable(progress.destination),
  )

  set.counter('mongosync_collection_copy_copied_docs_count', 'As tandem_copied_documents_total.', meter.copiedDocuments)
  set.counter('mongosync_collection_copy_copied_bytes_count', 'As tandem_copied_bytes_total.', meter.copiedBytes)
  set.counter(
    'mongosync_collection_copy_partitions_completed_count',
    'As tandem_copied_segments_total.',
    meter.copiedSegments,
  )
  milliseconds(
    'mongosync_collection_copy_source_read_op_duration',
    'Milliseconds of the reads of the copy.',
    'copyRead',
  )
  milliseconds(
    'mongosync_collection_copy_destination_write_op_duration',
    'Milliseconds of the writes of the copy.',
    'copyWrite',
  )

  set.counter('mongosync_cea_change_stream_reader_events_read', 'As tandem_stream_events_total.', meter.streamEvents)
  set.counter('mongosync_cea_change_stream_reader_bytes_read', 'As tandem_stream_bytes_total.', meter.streamBytes)
  set.counter('mongosync_cea_total_events_applied', 'As tandem_events_applied_total.', progress.totalEventsApplied)
  set.counter('mongosync_cea_total_ddl_events_applied', 'As tandem_definition_events_total.', meter.definitionEvents)
  milliseconds('mongosync_cea_source_read_op_duration', 'Milliseconds of the reads of changed documents.', 'applyRead')
  milliseconds(
    'mongosync_cea_destination_write_op_duration',
    'Milliseconds of the writes of changed documents.',
    'applyWrite',
  )

  const { verification } = progress
  if (!verification) return
  const { source, destination } = verification
  set.gauge(
    'verifier_lag_time',
    'Seconds, the larger of both clusters.',
    Math.max(source.lagTimeSeconds, destination.lagTimeSeconds),
  )
  set.gauge(
    'verifier_auditor_num_docs_hashed',
    'Documents compared, of both clusters together.',
    source.hashedDocumentCount + destination.hashedDocumentCount,
  )
  set.gauge(
    'verifier_auditor_estimated_docs_count',
    'Estimated documents to compare, of both clusters together.',
    source.estimatedDocumentCount + destination.estimatedDocumentCount,
  )
  set.gauge(
    'verifier_auditor_scanned_collection_count',
    'Collections scanned, of both clusters together.',
    source.scannedCollectionCount + destination.scannedCollectionCount,
  )
}
