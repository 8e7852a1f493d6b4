import type { Progress } from '../domain/progress.ts'
import type { WorkMeter } from '../domain/work-meter.ts'
import type { MetricSet } from './metric-set.ts'

/**
 * Adds tandem's figures under the names and in the units of mongosync's metrics, so that a dashboard or an alert for
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

  set.gauge('mongosync_lag_time', 'Same value as tandem_lag_seconds.', progress.lagTimeSeconds)
  set.gauge('mongosync_retry_count', 'Same value as tandem_retries_total.', meter.retries)
  milliseconds('mongosync_src_ping_latency', 'Latency of pings to the source, in milliseconds.', 'sourcePing')
  milliseconds('mongosync_dst_ping_latency', 'Latency of pings to the destination, in milliseconds.', 'destinationPing')
  set.gauge('mongosync_src_unavailable', 'Whether the last ping of the source failed.', unavailable(progress.source))
  set.gauge(
    'mongosync_dst_unavailable',
    'Whether the last ping of the destination failed.',
    unavailable(progress.destination),
  )

  set.counter(
    'mongosync_collection_copy_copied_docs_count',
    'Same value as tandem_copied_documents_total.',
    meter.copiedDocuments,
  )
  set.counter(
    'mongosync_collection_copy_copied_bytes_count',
    'Same value as tandem_copied_bytes_total.',
    meter.copiedBytes,
  )
  set.counter(
    'mongosync_collection_copy_partitions_completed_count',
    'Same value as tandem_copied_segments_total.',
    meter.copiedSegments,
  )
  milliseconds(
    'mongosync_collection_copy_source_read_op_duration',
    'Duration of one read of the copy, in milliseconds.',
    'copyRead',
  )
  milliseconds(
    'mongosync_collection_copy_destination_write_op_duration',
    'Duration of one write of the copy, in milliseconds.',
    'copyWrite',
  )

  set.counter(
    'mongosync_cea_change_stream_reader_events_read',
    'Same value as tandem_stream_events_total.',
    meter.streamEvents,
  )
  set.counter(
    'mongosync_cea_change_stream_reader_bytes_read',
    'Same value as tandem_stream_bytes_total.',
    meter.streamBytes,
  )
  set.counter(
    'mongosync_cea_total_events_applied',
    'Same value as tandem_events_applied_total.',
    progress.totalEventsApplied,
  )
  set.counter(
    'mongosync_cea_total_ddl_events_applied',
    'Same value as tandem_definition_events_total.',
    meter.definitionEvents,
  )
  milliseconds(
    'mongosync_cea_source_read_op_duration',
    'Duration of one read of changed documents, in milliseconds.',
    'applyRead',
  )
  milliseconds(
    'mongosync_cea_destination_write_op_duration',
    'Duration of one write of changed documents, in milliseconds.',
    'applyWrite',
  )

  const { verification } = progress
  if (!verification) return
  const { source, destination } = verification
  set.gauge(
    'verifier_lag_time',
    'The larger tandem_verification_lag_seconds of the two clusters.',
    Math.max(source.lagTimeSeconds, destination.lagTimeSeconds),
  )
  set.gauge(
    'verifier_auditor_num_docs_hashed',
    'Documents compared, summed over both clusters.',
    source.hashedDocumentCount + destination.hashedDocumentCount,
  )
  set.gauge(
    'verifier_auditor_estimated_docs_count',
    'Estimated documents to compare, summed over both clusters.',
    source.estimatedDocumentCount + destination.estimatedDocumentCount,
  )
  set.gauge(
    'verifier_auditor_scanned_collection_count',
    'Collections scanned, summed over both clusters.',
    source.scannedCollectionCount + destination.scannedCollectionCount,
  )
}
