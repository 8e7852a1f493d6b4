import type { Progress, PublicState } from '../domain/progress.ts'

/**
 * Progress in the text format of Prometheus (0.0.4, https://prometheus.io/docs/instrumenting/exposition_formats/), in
 * base units. It covers what alerts need. docs/metrics.md describes each metric, and docs/alerts.yml has rules to
 * begin with.
 */
export const metricsContentType = 'text/plain; version=0.0.4; charset=utf-8'

interface Sample {
  labels?: Record<string, string>
  value: number
}

interface Metric {
  name: string
  help: string
  type: 'gauge' | 'counter'
  samples: Sample[]
}

const states: PublicState[] = ['IDLE', 'RUNNING', 'PAUSED', 'COMMITTING', 'COMMITTED', 'REVERSING', 'FAILED']

/** @param progress null while the instance is still connecting to its clusters */
export function renderMetrics(progress: Progress | null, version: string): string {
  return metricsOf(progress, version)
    .filter(({ samples }) => samples.length > 0)
    .map(({ name, help, type, samples }) => {
      const lines = samples.map(({ labels, value }) => `${name}${labels ? labelled(labels) : ''} ${value}`)
      return [`# HELP ${name} ${help}`, `# TYPE ${name} ${type}`, ...lines, ''].join('\n')
    })
    .join('')
}

function metricsOf(progress: Progress | null, version: string): Metric[] {
  const id = progress?.mongosyncID
  const gauge = (name: string, help: string, ...samples: (Sample | number | null | undefined)[]): Metric => ({
    name,
    help,
    type: 'gauge',
    samples: samples.flatMap((one) => (one == null ? [] : [typeof one === 'number' ? { value: one } : one])),
  })
  const always = [
    gauge('tandem_info', 'Always 1; the labels identify the instance.', {
      labels: { version, ...(id ? { mongosync_id: id } : {}) },
      value: 1,
    }),
    gauge('tandem_connected', 'Whether the instance has reached both clusters since it was started.', progress ? 1 : 0),
  ]
  if (!progress) return always
  const { collectionCopy, verification, totalEventsApplied } = progress
  const sides = verification ? (['source', 'destination'] as const) : []
  return [
    ...always,
    gauge(
      'tandem_state',
      '1 for the state the instance is in.',
      ...states.map((state) => ({ labels: { state }, value: Number(state === progress.state) })),
    ),
    gauge('tandem_can_commit', 'Whether a commit would be accepted.', Number(progress.canCommit)),
    gauge(
      'tandem_can_write',
      'Whether applications may write on the destination.',
      progress.canWrite === null ? null : Number(progress.canWrite),
    ),
    gauge(
      'tandem_lag_seconds',
      'Time between the newest event of the source and the newest applied one.',
      progress.lagTimeSeconds,
    ),
    {
      name: 'tandem_events_applied_total',
      help: 'Change events applied by this instance since it was started.',
      type: 'counter',
      samples: totalEventsApplied === null ? [] : [{ value: totalEventsApplied }],
    },
    gauge(
      'tandem_copy_total_bytes',
      'Estimated bytes of documents to copy, by all instances.',
      collectionCopy?.estimatedTotalBytes,
    ),
    gauge(
      'tandem_copy_copied_bytes',
      'Bytes of documents copied by this instance.',
      collectionCopy?.estimatedCopiedBytes,
    ),
    gauge(
      'tandem_verification_documents',
      'Estimated documents to compare, by cluster.',
      ...sides.map((cluster) => ({ labels: { cluster }, value: verification?.[cluster].estimatedDocumentCount ?? 0 })),
    ),
    gauge(
      'tandem_verification_hashed_documents',
      'Documents compared, by cluster.',
      ...sides.map((cluster) => ({ labels: { cluster }, value: verification?.[cluster].hashedDocumentCount ?? 0 })),
    ),
    gauge(
      'tandem_oplog_remaining_seconds',
      'How long the sync could stand still before the oplog of the source has overtaken it; absent while not known.',
      progress.oplogSecondsRemaining,
    ),
    gauge(
      'tandem_oplog_visible',
      'Whether the oplog of the source, of each shard, could be read; absent once it does not matter any more.',
      progress.oplogVisible === undefined ? null : Number(progress.oplogVisible),
    ),
    gauge(
      'tandem_copying',
      'Whether this instance is RUNNING and the copy has not ended.',
      progress.info === null ? null : Number(progress.state === 'RUNNING' && progress.info === 'collection copy'),
    ),
    gauge(
      'tandem_instances',
      'Instances of the sync as this one sees them; those lost for more than a day are left out.',
      ...(['alive', 'lost'] as const).flatMap((status) =>
        progress.instances ? [{ labels: { status }, value: progress.instances[status] }] : [],
      ),
    ),
    gauge('tandem_mismatches', 'What the last verdict found different.', progress.mismatches),
    gauge(
      'tandem_differing_documents',
      'Documents that stayed different over several comparisons, and are compared again.',
      progress.differingDocuments,
    ),
    gauge('tandem_warnings', 'How many warnings progress shows.', progress.warnings?.length ?? 0),
    gauge('tandem_retrying', 'Whether something is being tried again.', Number(progress.retrying !== undefined)),
    gauge(
      'tandem_backed_off',
      'Whether the copy is slowed down because the destination is overloaded.',
      Number(progress.limits?.backedOff !== undefined),
    ),
  ]
}

function labelled(labels: Record<string, string>): string {
  const escaped = (text: string): string => text.replaceAll('\\', '\\\\').replaceAll('"', '\\"').replaceAll('\n', '\\n')
  return `{${Object.entries(labels)
    .map(([name, value]) => `${name}="${escaped(value)}"`)
    .join(',')}}`
}
