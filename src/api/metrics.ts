import { Counter, Gauge, Registry } from 'prom-client'
import type { Progress, PublicState } from '../domain/progress.ts'

/**
 * Progress in the text format of Prometheus (0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats/), in
 * base units. It covers what alerts need. docs/metrics.md describes each metric, and docs/alerts.yml contains
 * example alert rules.
 */
export const metricsContentType = Registry.PROMETHEUS_CONTENT_TYPE

/** A value, or a value with labels. Null or undefined while it is unknown. */
type Sample = number | null | undefined | { labels: Record<string, string>; value: number }

const states: PublicState[] = ['IDLE', 'RUNNING', 'PAUSED', 'COMMITTING', 'COMMITTED', 'REVERSING', 'FAILED']

/** @param progress null while the instance is still connecting to its clusters */
export async function renderMetrics(progress: Progress | null, version: string): Promise<string> {
  // A new registry for each request, because unknown values must be absent.
  const registry = new Registry()
  const add = (Metric: typeof Gauge | typeof Counter, name: string, help: string, samples: Sample[]): void => {
    const known = samples
      .filter((one) => one != null)
      .map((one) => (typeof one === 'number' ? { labels: {}, value: one } : one))
    if (known.length === 0) return
    const labelNames = [...new Set(known.flatMap(({ labels }) => Object.keys(labels)))]
    const metric = new Metric({ name, help, labelNames, registers: [registry] })
    for (const { labels, value } of known) metric.inc(labels, value)
  }
  const gauge = (name: string, help: string, ...samples: Sample[]): void => add(Gauge, name, help, samples)
  const id = progress?.mongosyncID
  gauge('tandem_info', 'Always 1; the labels identify the instance.', {
    labels: { version, ...(id ? { mongosync_id: id } : {}) },
    value: 1,
  })
  gauge('tandem_connected', 'Whether the instance has reached both clusters since it was started.', progress ? 1 : 0)
  if (!progress) return await registry.metrics()
  const { collectionCopy, verification, totalEventsApplied } = progress
  const sides = verification ? (['source', 'destination'] as const) : []
  gauge(
    'tandem_state',
    '1 for the state the instance is in.',
    ...states.map((state) => ({ labels: { state }, value: Number(state === progress.state) })),
  )
  gauge('tandem_can_commit', 'Whether a commit would be accepted.', Number(progress.canCommit))
  gauge(
    'tandem_can_write',
    'Whether applications may write on the destination.',
    progress.canWrite === null ? null : Number(progress.canWrite),
  )
  gauge(
    'tandem_lag_seconds',
    'Time between the newest event of the source and the newest applied one.',
    progress.lagTimeSeconds,
  )
  add(Counter, 'tandem_events_applied_total', 'Change events applied by this instance since it was started.', [
    totalEventsApplied,
  ])
  gauge(
    'tandem_copy_total_bytes',
    'Estimated bytes of documents to copy, by all instances.',
    collectionCopy?.estimatedTotalBytes,
  )
  gauge('tandem_copy_copied_bytes', 'Bytes of documents copied by this instance.', collectionCopy?.estimatedCopiedBytes)
  gauge(
    'tandem_verification_documents',
    'Estimated documents to compare, by cluster.',
    ...sides.map((cluster) => ({ labels: { cluster }, value: verification?.[cluster].estimatedDocumentCount ?? 0 })),
  )
  gauge(
    'tandem_verification_hashed_documents',
    'Documents compared, by cluster.',
    ...sides.map((cluster) => ({ labels: { cluster }, value: verification?.[cluster].hashedDocumentCount ?? 0 })),
  )
  gauge(
    'tandem_oplog_remaining_seconds',
    'How long the sync could stop before the oplog of the source overwrites its position; absent while unknown.',
    progress.oplogSecondsRemaining,
  )
  gauge(
    'tandem_oplog_visible',
    'Whether the oplog of each source shard could be read; absent once the oplog no longer matters.',
    progress.oplogVisible === undefined ? null : Number(progress.oplogVisible),
  )
  gauge(
    'tandem_copying',
    'Whether this instance is RUNNING and the copy has not ended.',
    progress.info === null ? null : Number(progress.state === 'RUNNING' && progress.info === 'collection copy'),
  )
  gauge(
    'tandem_converging_collections',
    'Collections that this instance still compares with the source, and in which it writes only what differs.',
    progress.info === null ? null : (progress.convergingCollections ?? 0),
  )
  gauge(
    'tandem_instances',
    'Instances of the sync that this one knows; those lost for more than a day are left out.',
    ...(['alive', 'lost'] as const).flatMap((status) =>
      progress.instances ? [{ labels: { status }, value: progress.instances[status] }] : [],
    ),
  )
  gauge('tandem_mismatches', 'Differences that the last verdict found.', progress.mismatches)
  gauge(
    'tandem_differing_documents',
    'Documents that remained different over several comparisons, and are compared again.',
    progress.differingDocuments,
  )
  gauge('tandem_warnings', 'How many warnings progress shows.', progress.warnings?.length ?? 0)
  gauge('tandem_retrying', 'Whether an operation is being retried.', Number(progress.retrying !== undefined))
  gauge(
    'tandem_backed_off',
    'Whether the copy is slowed down because the destination is overloaded.',
    Number(progress.limits?.backedOff !== undefined),
  )
  return await registry.metrics()
}
