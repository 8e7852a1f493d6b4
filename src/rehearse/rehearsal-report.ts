import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import type { ProbeResult } from './probe.ts'
import type { RehearsalResult } from './rehearsal.ts'
import type { ClusterFacts } from './rehearsal-cluster.ts'

export interface RehearsalReport {
  passed: boolean
  /** The release of tandem. */
  version: string
  clusters: Record<'cluster0' | 'cluster1', ClusterFacts>
  seed: number
  probes: ProbeResult[]
  /** Null if the sync did not complete. */
  sync: RehearsalResult | null
  /** The result of the comparison after the commit, with the first differences as text; null if nothing was compared. */
  comparison: { equal: boolean; documents: number; differences: string[] } | null
  /** Why the rehearsal ended early; null if it did not. */
  failure: string | null
  /** An estimate of the time that a copy of the source's user databases takes, from the measured rates; null without rates. */
  estimate: CopyEstimate | null
  /** The databases that the rehearsal created and dropped again, on both clusters. */
  touched: string[]
  notRehearsed: string[]
}

/**
 * Hours for copying `dataBytes` at the median (`hours`), the 90th (`hoursLow`) and the 10th percentile (`hoursHigh`) of
 * the measured rates.
 */
export interface CopyEstimate {
  dataBytes: number
  hours: number
  hoursLow: number
  hoursHigh: number
}

export function estimateCopy(dataBytes: number, sync: RehearsalResult | null): CopyEstimate | null {
  const rate = sync?.copyBytesPerSecond
  if (!rate) return null
  const hours = (bytesPerSecond: number): number => dataBytes / bytesPerSecond / 3_600
  return { dataBytes, hours: hours(rate.median), hoursLow: hours(rate.high), hoursHigh: hours(rate.low) }
}

/** Returns the report as Markdown. A terminal shows the same text. */
export function reportText(report: RehearsalReport): string {
  const { clusters, probes, sync, comparison, failure, estimate } = report
  const lines = [
    `# Rehearsal of tandem ${report.version}: ${report.passed ? 'passed' : 'FAILED'}`,
    '',
    ...(['cluster0', 'cluster1'] as const).map((name) => `- ${name}: ${clusterLine(clusters[name])}`),
    `- seed of the workload: ${report.seed}`,
    '',
    `## Probes: ${probes.filter(({ passed }) => passed).length} of ${probes.length} passed`,
    '',
    ...probes.flatMap(probeLines),
    '',
    '## Sync',
    '',
    ...(sync === null ? ['- not completed'] : syncLines(sync)),
    ...(comparison === null ? [] : comparisonLines(comparison)),
    ...(failure === null ? [] : [`- FAILED: ${failure}`]),
    ...(estimate === null ? [] : ['', '## Estimate', '', ...estimateLines(estimate)]),
    '',
    '## Not rehearsed',
    '',
    ...report.notRehearsed.map((one) => `- ${one}`),
    '',
    `Databases that were created and dropped again on both clusters: ${report.touched.join(', ')}.`,
  ]
  return `${lines.map((line) => printable(redactUris(line))).join('\n')}\n`
}

function clusterLine({ version, topology, shards, dataBytes }: ClusterFacts): string {
  const kind = shards === null ? topology : `${topology} of ${shards} shards`
  return `MongoDB ${version}, ${kind}, ${gigabytes(dataBytes)} in user databases`
}

function probeLines({ name, side, reason, passed, answer }: ProbeResult): string[] {
  if (passed) return [`- ok: ${name} (${side}): ${answer}`]
  return [`- FAILED: ${name} (${side}): ${answer}`, `  Why it matters: ${reason}.`]
}

function syncLines(sync: RehearsalResult): string[] {
  const { copyBytesPerSecond: rate, workload, dryRun } = sync
  const atRate = rate === null ? '' : `, ${(rate.median / 1e6).toFixed(1)} MB/s`
  return [
    `- copy: ${sync.copySeconds.toFixed(1)} s${atRate}`,
    `- workload: ${workload.steps} steps, of which the source refused ${workload.refused}; ${sync.eventsApplied} events applied; lag at most ${sync.lagSecondsMax} s`,
    `- takeover after SIGKILL of the coordinator: ${sync.takeoverSeconds.toFixed(1)} s`,
    `- rehearsed commit: writes would stop for ${dryRun.outageSeconds.toFixed(2)} s; verdict: ${dryRun.verdict}`,
    `- commit to canWrite: ${sync.cutoverSeconds.toFixed(2)} s`,
  ]
}

function comparisonLines({ equal, documents, differences }: NonNullable<RehearsalReport['comparison']>): string[] {
  if (equal) return [`- comparison of all bytes: equal (${documents} documents)`]
  return ['- comparison of all bytes: DIFFERENT', ...differences.map((one) => `  - ${one}`)]
}

function estimateLines({ dataBytes, hours, hoursLow, hoursHigh }: CopyEstimate): string[] {
  return [
    `- copy of ${gigabytes(dataBytes)}: ${duration(hours)} at the median rate, ${duration(hoursLow)} to ${duration(hoursHigh)} between the 90th and the 10th percentile`,
    '- The rates are those of documents of about 1 KB on clusters under this workload. They change if the data is larger than the cache, with other document sizes, and with secondary indexes.',
  ]
}

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(bytes < 1e8 ? 3 : 1)} GB`

function duration(hours: number): string {
  if (hours >= 1) return `${hours.toFixed(1)} h`
  return hours * 60 >= 1 ? `${(hours * 60).toFixed(1)} min` : `${(hours * 3_600).toFixed(1)} s`
}
