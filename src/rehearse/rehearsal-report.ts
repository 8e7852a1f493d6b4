import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import type { ProbeResult } from './probe.ts'
import type { ClusterFacts } from './rehearsal-cluster.ts'
import type { RehearsalResult, ReverseResult } from './rehearsal-result.ts'
import { type StepDown, stepDownLine } from './step-downs.ts'

/** The result of a comparison of all bytes, with the first differences as text. */
export interface ComparisonResult {
  equal: boolean
  documents: number
  differences: string[]
}

/** The results of the phases of the sync. The result of a phase that did not complete is null. */
export interface RehearsedPhases {
  sync: RehearsalResult | null
  /** The comparison after the commit. */
  comparison: ComparisonResult | null
  /** Null also if the rehearsal was not to reverse the sync. */
  reverse: (ReverseResult & { comparison: ComparisonResult }) | null
}

export interface RehearsalReport extends RehearsedPhases {
  passed: boolean
  /** The release of tandem. */
  version: string
  clusters: Record<'cluster0' | 'cluster1', ClusterFacts>
  seed: number
  probes: ProbeResult[]
  /** The elections that the rehearsal has caused (`--stepDowns`). */
  stepDowns: StepDown[]
  /** Why the rehearsal ended early; null if it did not. */
  failure: string | null
  /** An estimate of the time that a copy of the source's user databases takes, from the measured rates; null without rates, or without data. */
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
  if (!rate || dataBytes === 0) return null
  const hours = (bytesPerSecond: number): number => dataBytes / bytesPerSecond / 3_600
  return { dataBytes, hours: hours(rate.median), hoursLow: hours(rate.high), hoursHigh: hours(rate.low) }
}

/** Returns the report as Markdown. A terminal shows the same text. */
export function reportText(report: RehearsalReport): string {
  const { clusters, probes, sync, comparison, reverse, stepDowns, failure, estimate } = report
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
    ...stepDowns.map((one) => `- ${stepDownLine(one)}`),
    ...(sync === null ? ['- not completed'] : syncLines(sync)),
    ...(comparison === null ? [] : comparisonLines(comparison)),
    ...(comparison?.equal && stepDowns.length > 0 ? [`- nothing was lost in ${stepDowns.length} elections`] : []),
    ...(reverse === null ? [] : ['', '## Reverse', '', ...reverseLines(reverse)]),
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
  const { copyBytesPerSecond: rate, dryRun } = sync
  const atRate = rate === null ? '' : `, ${(rate.median / 1e6).toFixed(1)} MB/s`
  return [
    `- copy: ${sync.copySeconds.toFixed(1)} s${atRate}`,
    workloadLine(sync),
    `- takeover after SIGKILL of the coordinator: ${sync.takeoverSeconds.toFixed(1)} s`,
    `- rehearsed commit: writes would stop for ${dryRun.outageSeconds.toFixed(2)} s; verdict: ${dryRun.verdict}`,
    `- commit to canWrite: ${sync.cutoverSeconds.toFixed(2)} s`,
  ]
}

function reverseLines(reverse: NonNullable<RehearsedPhases['reverse']>): string[] {
  const { formerSourceBlocked, reverseSeconds, cutoverSeconds, comparison } = reverse
  return [
    ...(formerSourceBlocked
      ? ['- write blocking: cluster0 blocks user writes after the commit, as its server reports']
      : []),
    `- reverse until changes were applied from cluster1 to cluster0: ${reverseSeconds.toFixed(2)} s`,
    workloadLine(reverse),
    `- commit to canWrite: ${cutoverSeconds.toFixed(2)} s`,
    ...comparisonLines(comparison),
  ]
}

function workloadLine({
  workload: { steps, refused },
  eventsApplied,
  lagSecondsMax,
}: Pick<RehearsalResult, 'workload' | 'eventsApplied' | 'lagSecondsMax'>): string {
  return `- workload: ${steps} steps, of which the source refused ${refused}; ${eventsApplied} events applied; lag at most ${lagSecondsMax} s`
}

function comparisonLines({ equal, documents, differences }: ComparisonResult): string[] {
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
