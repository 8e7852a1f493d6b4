/**
 * Reads a log as MongoDB's Mongosync Insights 0.9.0.16 does: it looks for the same lines, and takes the same fields in
 * the same form (github.com/mongodb/support-tools, migration/mongosync_insights/lib/logs_metrics.py, `upload_file`).
 * The regular expressions are those of that file. Throws if Insights would reject the whole log.
 */

export interface InsightsReading {
  versions: Line[]
  options: Line[]
  startBodies: Record<string, unknown>[]
  /** Canonical names of the phases, in the order in which they began. */
  phases: string[]
  replication: Line[]
  /** Bodies of `sent response` that contain progress. */
  progresses: Record<string, unknown>[]
  responses: Line[]
  operations: Line[]
  crudRates: number[]
  partitions: { written: number; total: number }[]
  verifierLags: { source: number[]; destination: number[] }
}

type Line = Record<string, unknown>

const patterns = {
  replication: /Replication progress/i,
  versions: /Version info/i,
  operations: /Operation duration stats/i,
  responses: /sent response/i,
  phases:
    /Starting initializing collections and indexes phase|Starting initializing partitions phase|Starting collection copy phase|Starting change event application phase|Commit handler called/i,
  options: /Mongosync Options/i,
  crudRate: /Average Source CRUD events rate/i,
  partitions: /Completed writing \d+ \/ \d+ partitions to destination cluster/i,
  requests: /Received request/i,
}
/** A phase is recognised only by the whole message. */
const phaseNames = new Map([
  ['starting initializing collections and indexes phase', 'initializing collections and indexes'],
  ['starting initializing partitions phase', 'initializing partitions'],
  ['starting collection copy phase', 'collection copy'],
  ['starting change event application phase', 'change event application'],
  ['commit handler called', 'commit handler called'],
])
/** Insights parses the first 26 characters with the format `%Y-%m-%dT%H:%M:%S.%f`, which allows no time zone. */
const timeForm = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}$/

export function readAsInsights(log: string): InsightsReading {
  const lines = log
    .split('\n')
    .filter((line) => line.startsWith('{'))
    .map((line) => JSON.parse(line) as Line)
  const matching = (pattern: RegExp): Line[] => lines.filter(({ message }) => pattern.test(String(message)))
  for (const { time } of lines) {
    if (!timeForm.test(String(time).slice(0, 26)))
      throw new Error(`the time ${time} does not have the form of mongosync`)
  }
  const replication = matching(patterns.replication)
  // The charts need one value for each time.
  for (const line of replication) {
    for (const field of ['totalEventsApplied', 'lagTimeSeconds']) {
      if (!(field in line)) throw new Error(`${field} is missing in ${JSON.stringify(line)}`)
    }
  }
  const responses = matching(patterns.responses)
  const bodies = responses.map(({ body }) => JSON.parse(String(body)) as { progress?: Record<string, unknown> })
  const progresses = bodies.flatMap(({ progress }) => (progress ? [progress] : []))
  for (const { collectionCopy } of progresses) {
    if (!collectionCopy) throw new Error('an answer has no figures of the copy')
  }
  const partitions = matching(patterns.partitions).map(({ message }) => {
    const [, written, total] = /Completed writing (\d+) \/ (\d+) partitions/.exec(String(message)) ?? []
    return { written: Number(written), total: Number(total) }
  })
  const lags = (field: string): number[] =>
    lines.flatMap((line) => (typeof line[field] === 'number' ? [line[field]] : []))
  return {
    versions: matching(patterns.versions),
    options: matching(patterns.options),
    startBodies: matching(patterns.requests)
      .filter(({ uri }) => uri === '/api/v1/start')
      .map(({ body }) => JSON.parse(String(body)) as Record<string, unknown>),
    phases: matching(patterns.phases).flatMap(({ message }) => phaseNames.get(String(message).toLowerCase()) ?? []),
    replication,
    progresses,
    responses,
    operations: matching(patterns.operations),
    crudRates: matching(patterns.crudRate).map(({ srcCRUDEventsPerSec }) => Number(srcCRUDEventsPerSec)),
    partitions,
    verifierLags: { source: lags('verifierSrcLagTimeSeconds'), destination: lags('verifierDstLagTimeSeconds') },
  }
}
