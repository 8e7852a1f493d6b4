import process from 'node:process'
import { Registry } from 'prom-client'
import { errorDetails } from '../domain/error-details.ts'
import { causeOfFailure, type Failure } from '../domain/errors.ts'
import type { Progress, PublicState } from '../domain/progress.ts'
import type { WorkMeter } from '../domain/work-meter.ts'
import { MetricSet } from './metric-set.ts'
import { addMongosyncMetrics } from './mongosync-metrics.ts'
import { processMetrics } from './process-metrics.ts'

/** The content type of Prometheus' text format (0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats/). */
export const metricsContentType = Registry.PROMETHEUS_CONTENT_TYPE

const states: PublicState[] = ['IDLE', 'RUNNING', 'PAUSED', 'COMMITTING', 'COMMITTED', 'REVERSING', 'FAILED']

export interface MetricSources {
  /** Null while the instance is still connecting to its clusters. */
  progress: Progress | null
  version: string
  meter: WorkMeter
}

/**
 * Returns the answer to `GET /metrics`, without unknown values. Names and units follow Prometheus' conventions
 * (https://prometheus.io/docs/practices/naming/). docs/metrics.md describes each metric, and docs/alerts.yml contains
 * example alert rules.
 */
export async function renderMetrics({ progress, version, meter }: MetricSources): Promise<string> {
  const set = new MetricSet()
  const id = progress?.mongosyncID
  set.gauge('tandem_build_info', 'Always 1; the labels are the releases of tandem and Node.js.', {
    labels: { version, node_version: process.versions.node },
    value: 1,
  })
  set.gauge('tandem_info', 'Deprecated: use tandem_build_info and tandem_instance_info.', {
    labels: { version, ...(id ? { mongosync_id: id } : {}) },
    value: 1,
  })
  set.gauge(
    'tandem_connected',
    'Whether the instance has reached both clusters since it was started.',
    progress ? 1 : 0,
  )
  if (progress) {
    addState(set, progress)
    addProgress(set, progress)
    addWork(set, meter)
    addMongosyncMetrics(set, progress, meter)
  }
  return await Registry.merge([set.registry, processMetrics()]).metrics()
}

/** Adds the instance's id and state, its failure, and the conditions (0 or 1) that alerts are based on. */
function addState(set: MetricSet, progress: Progress): void {
  const { mongosyncID, failure, info } = progress
  set.gauge(
    'tandem_instance_info',
    'Always 1; the label is the id of the instance.',
    mongosyncID ? { labels: { mongosync_id: mongosyncID }, value: 1 } : null,
  )
  set.gauge(
    'tandem_state',
    '1 for the current state of the instance, 0 for the other states.',
    ...states.map((state) => ({ labels: { state }, value: Number(state === progress.state) })),
  )
  set.gauge(
    'tandem_failure',
    'Always 1; the labels are the name of the failure and, if known, the cluster and the name of the server error. ' +
      'Present while the instance is FAILED.',
    failure ? { labels: failureLabels(failure), value: 1 } : null,
  )
  set.gauge('tandem_can_commit', 'Whether a commit would be accepted.', Number(progress.canCommit))
  set.gauge('tandem_can_write', 'Whether applications may write on the destination.', flag(progress.canWrite))
  set.gauge(
    'tandem_oplog_visible',
    'Whether the last read of the oplog of every source shard succeeded; absent before the first read and from canWrite on.',
    flag(progress.oplogVisible),
  )
  set.gauge(
    'tandem_copying',
    'Whether this instance is RUNNING and the copy has not ended.',
    info === null ? null : Number(progress.state === 'RUNNING' && info === 'collection copy'),
  )
  set.gauge('tandem_warnings', 'Number of warnings in progress.warnings.', progress.warnings?.length ?? 0)
  set.gauge('tandem_retrying', 'Whether an operation is being retried.', Number(progress.retrying !== undefined))
  set.gauge(
    'tandem_backed_off',
    'Whether the copy is slowed down because the destination is overloaded.',
    Number(progress.limits?.backedOff !== undefined),
  )
}

/** Returns only names. The texts of a failure may contain addresses and namespaces, which `/metrics` must not show. */
function failureLabels(failure: Failure): Record<string, string> {
  const { cluster, codeName } = errorDetails(failure.error, causeOfFailure(failure))
  return {
    error: failure.error,
    // A target in Prometheus often has a label `cluster` of its own.
    ...(cluster !== undefined && { mongodb_cluster: cluster }),
    ...(codeName !== undefined && { code_name: codeName }),
  }
}

/** Adds the numbers of `progress`: lag, copy, verification, index builds, oplog, instances and differences. */
function addProgress(set: MetricSet, progress: Progress): void {
  const { collectionCopy, verification, indexBuilding } = progress
  const sides = ['source', 'destination'] as const
  set.gauge(
    'tandem_lag_seconds',
    'Time between the newest event of the source and the newest applied one.',
    progress.lagTimeSeconds,
  )
  set.counter(
    'tandem_events_applied_total',
    'Change events applied by this instance since it was started.',
    progress.totalEventsApplied,
  )
  set.gauge(
    'tandem_copy_total_bytes',
    'Estimated bytes of documents to copy, for all instances together.',
    collectionCopy?.estimatedTotalBytes,
  )
  set.gauge(
    'tandem_copy_copied_bytes',
    'Bytes of documents copied by this instance. The coordinator also includes those copied by lost instances.',
    collectionCopy?.estimatedCopiedBytes,
  )
  set.gauge(
    'tandem_verification_documents',
    'Estimated documents to compare, by cluster.',
    ...sides.map((cluster) => labelled({ cluster }, verification?.[cluster].estimatedDocumentCount)),
  )
  set.gauge(
    'tandem_verification_hashed_documents',
    'Documents compared, by cluster.',
    ...sides.map((cluster) => labelled({ cluster }, verification?.[cluster].hashedDocumentCount)),
  )
  set.gauge(
    'tandem_verification_lag_seconds',
    'Time between the newest known change of a cluster and the newest one that the verifier has read, by cluster.',
    ...sides.map((cluster) => labelled({ cluster }, verification?.[cluster].lagTimeSeconds)),
  )
  set.gauge('tandem_indexes_built', 'Indexes that exist on the destination.', indexBuilding?.indexesBuilt)
  set.gauge(
    'tandem_indexes_to_build',
    'Indexes to build, including those that exist.',
    indexBuilding?.totalIndexesToBuild,
  )
  set.gauge(
    'tandem_cluster_reachable',
    'Whether the last ping of a cluster was answered, by cluster.',
    ...sides.map((cluster) => labelled({ cluster }, reachable(progress[cluster]))),
  )
  set.gauge(
    'tandem_oplog_remaining_seconds',
    'How long the sync could stop before the oplog of the source no longer reaches back to its position; absent while unknown.',
    progress.oplogSecondsRemaining,
  )
  set.gauge(
    'tandem_converging_collections',
    'Collections that this instance has not yet made equal to the source by comparing them and writing what differs.',
    progress.info === null ? null : (progress.convergingCollections ?? 0),
  )
  set.gauge(
    'tandem_instances',
    'Instances of the sync as this instance observes them, by status; those lost for more than a day are not counted.',
    ...(['alive', 'lost'] as const).map((status) => labelled({ status }, progress.instances?.[status])),
  )
  set.gauge('tandem_mismatches', 'Differences that the last verdict found.', progress.mismatches)
  set.gauge(
    'tandem_differing_documents',
    'Documents that differed in several comparisons in a row. They are compared again.',
    progress.differingDocuments,
  )
}

/** Adds the work of this process since it was started, and the current depth of its lanes. */
function addWork(set: MetricSet, meter: WorkMeter): void {
  set.gauge(
    'tandem_last_progress_timestamp_seconds',
    'When this process last copied documents or finished applying a batch of the change stream, even an empty one.',
    meter.progressedAt === null ? null : meter.progressedAt / 1_000,
  )
  set.counter(
    'tandem_copied_documents_total',
    'Documents that this process has copied or, in a convergence, compared.',
    meter.copiedDocuments,
  )
  set.counter(
    'tandem_copied_bytes_total',
    'Bytes of the documents in tandem_copied_documents_total.',
    meter.copiedBytes,
  )
  set.counter('tandem_copied_segments_total', 'Collection segments that this process has copied.', meter.copiedSegments)
  set.counter('tandem_stream_events_total', 'Events read from the change stream.', meter.streamEvents)
  set.counter('tandem_stream_bytes_total', 'Bytes of events read from the change stream.', meter.streamBytes)
  set.counter('tandem_definition_events_total', 'DDL events applied by this process.', meter.definitionEvents)
  set.counter('tandem_retries_total', 'Failed attempts of operations that are retried.', meter.retries)
  set.gauge(
    'tandem_lane_documents',
    'Changed documents that wait in a lane of event application or are being written, by lane.',
    ...meter.laneDepths.map((value, lane) => labelled({ lane: String(lane) }, value)),
  )
  const flushes = [...meter.flushes.entries()].flatMap(([lane, durations]) =>
    durations ? [{ labels: { lane: String(lane) }, durations }] : [],
  )
  set.histogram('tandem_lane_flush_seconds', 'Duration of reading and writing one batch of a lane.', 1_000, ...flushes)
  const { durations } = meter
  set.histogram(
    'tandem_operation_seconds',
    'Duration of one operation on a cluster.',
    1_000,
    { labels: { operation: 'copy_read' }, durations: durations.copyRead },
    { labels: { operation: 'copy_write' }, durations: durations.copyWrite },
    { labels: { operation: 'apply_read' }, durations: durations.applyRead },
    { labels: { operation: 'apply_write' }, durations: durations.applyWrite },
    { labels: { operation: 'ping_source' }, durations: durations.sourcePing },
    { labels: { operation: 'ping_destination' }, durations: durations.destinationPing },
  )
}

function labelled(labels: Record<string, string>, value: number | null | undefined) {
  return value == null ? null : { labels, value }
}

function flag(value: boolean | null | undefined): number | null {
  return value == null ? null : Number(value)
}

function reachable(ping: { pingLatencyMs: number } | undefined): number | null {
  return ping === undefined ? null : Number(ping.pingLatencyMs >= 0)
}
