import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { type AuditProgress, type AuditReport, audit } from './audit.ts'
import { AuditCluster, AuditError } from './audit-cluster.ts'
import { differenceLine } from './difference.ts'
import { type Renamed, RenamedDatabases } from './renamed-databases.ts'
import type { Namespace } from './selection.ts'

export interface VerifyOptions {
  cluster0: string
  cluster1: string
  json: boolean
  maxDifferences: number
  namespaces: Namespace[]
  excluded: Namespace[]
  /** Databases and collections that have other names on cluster1. */
  renamed: Renamed[]
  skipTimeSeries: boolean
  ignoreIndexes: boolean
  ignoreHashedIndexes: boolean
}

export interface VerifyOutput {
  /** Receives whole lines. */
  out: (text: string) => unknown
  err: (text: string) => unknown
  /** True if `err` is a terminal. */
  interactive: boolean
}

const progressEverySeconds = { interactive: 2, otherwise: 5 }

/**
 * `tandem verify`: prints the differences and returns the exit code, which is 0 for equal, 1 for different and 2 for a
 * failure.
 */
export async function runVerify(options: VerifyOptions, output: VerifyOutput): Promise<0 | 1 | 2> {
  const clusters: AuditCluster[] = []
  try {
    const left = new AuditCluster('cluster0', options.cluster0)
    clusters.push(left)
    const right = new AuditCluster('cluster1', options.cluster1, new RenamedDatabases(options.renamed))
    clusters.push(right)
    const report = await audit(left, right, { ...options, onProgress: progressPrinter(output) })
    output.out(options.json ? `${JSON.stringify(report, null, 2)}\n` : reportText(report))
    return report.equal ? 0 : 1
  } catch (error) {
    // A bug must not cause exit code 1, which means that the clusters differ.
    const message = error instanceof AuditError ? error.message : redactUris(`a bug in verify: ${String(error)}`)
    output.err(`error: ${printable(message)}\n`)
    return 2
  } finally {
    await Promise.all(clusters.map((cluster) => cluster.close().catch(() => {})))
  }
}

/**
 * Returns a function that prints a line after each interval. It prints none before the first interval has passed,
 * because a short run needs none.
 */
export function progressPrinter({ err, interactive }: VerifyOutput): (progress: AuditProgress) => void {
  const everyMS = 1_000 * (interactive ? progressEverySeconds.interactive : progressEverySeconds.otherwise)
  let printed = performance.now()
  return ({ namespace, documents, bytes, differences }) => {
    if (performance.now() - printed < everyMS) return
    printed = performance.now()
    err(
      `verify: at ${printable(namespace)}; ${count(documents)} documents, ${megabytes(bytes)} read, ${count(differences)} differences\n`,
    )
  }
}

function reportText(report: AuditReport): string {
  const lines = report.differences.map(differenceLine)
  const { totalDifferences: total, documents, bytes, collections, views } = report
  if (report.truncated) {
    lines.push(
      `truncated: ${count(report.differences.length)} of ${count(total)} differences listed; see --maxDifferences`,
    )
  }
  const compared = [
    `${count(collections)} collections`,
    `${count(views)} views`,
    `${count(documents.cluster0)} and ${count(documents.cluster1)} documents`,
    `${megabytes(bytes.cluster0)} and ${megabytes(bytes.cluster1)}`,
    `${report.durationSeconds.toFixed(1)} s`,
  ]
  lines.push(`${report.equal ? 'equal' : `DIFFERENT in ${count(total)}`}: ${compared.join(', ')}`)
  return `${lines.join('\n')}\n`
}

function count(value: number): string {
  return value.toLocaleString('en')
}

function megabytes(bytes: number): string {
  return `${(bytes / 1e6).toLocaleString('en', { maximumFractionDigits: 1 })} MB`
}
