import { randomInt } from 'node:crypto'
import { openSync, writeFileSync } from 'node:fs'
import { audit } from '../comparison/audit.ts'
import { AuditCluster } from '../comparison/audit-cluster.ts'
import { differenceLine } from '../comparison/difference.ts'
import { errorText } from '../domain/error-text.ts'
import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { definitionProbes } from './definition-probes.ts'
import { preparedClusters, refuseConflicts } from './prepared-clusters.ts'
import { type ProbeResult, runProbes } from './probe.ts'
import { readProbes } from './read-probes.ts'
import { Rehearsal } from './rehearsal.ts'
import { type ClusterFacts, RehearsalCluster } from './rehearsal-cluster.ts'
import { RehearsalDatabases } from './rehearsal-databases.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'
import {
  type ComparisonResult,
  estimateCopy,
  type RehearsalReport,
  type RehearsedPhases,
  reportText,
} from './rehearsal-report.ts'
import { seedSource } from './seed.ts'
import { StepDowns } from './step-downs.ts'
import { writeProbes } from './write-probes.ts'

export interface RehearseOptions {
  cluster0: string
  cluster1: string
  /** Prefix of the names of the rehearsal's databases. */
  prefix: string
  /** How many minutes the workload runs after the copy. With `reverse`, it runs for half of this time once more. */
  minutes: number
  /** Approximate size of the generated data, MB. */
  megabytes: number
  /** Block user writes on cluster1 until the commit. */
  blockWrites: boolean
  /** Rehearse `reverse` after the commit, which needs two clusters without other user databases. */
  reverse: boolean
  /** Make the primaries of both clusters step down. */
  stepDowns: boolean
  /** Seed of the workload; null for a random one. */
  seed: number | null
  /** Print the report as JSON and not as Markdown. */
  json: boolean
  /** The file that receives the report as Markdown; null for no file. */
  report: string | null
}

export interface RehearseOutput {
  out: (text: string) => unknown
  err: (text: string) => unknown
  /** Aborts the rehearsal, which then cleans up. */
  signal: AbortSignal
}

/** The most differences that the report lists for each comparison. */
const differencesMax = 20

/**
 * Runs `tandem rehearse`. Probes both clusters, runs a whole sync of generated data from cluster0 to cluster1, and
 * compares both clusters. Uses databases of its own, and drops them at the end. Returns the exit code: 0 if everything
 * passed; 1 if a probe, the sync, a comparison or the cleanup failed, or the rehearsal was interrupted; 2 if the rehearsal
 * could not begin, or its report could not be written.
 */
export async function runRehearse(
  options: RehearseOptions,
  version: string,
  output: RehearseOutput,
): Promise<0 | 1 | 2> {
  const source = new RehearsalCluster('cluster0', options.cluster0)
  const destination = new RehearsalCluster('cluster1', options.cluster1)
  const stepDowns = options.stepDowns ? new StepDowns() : null
  try {
    // The file is opened now, so that tandem reports a file that cannot be opened before the rehearsal begins.
    const file = options.report === null ? null : openSync(options.report, 'w')
    const facts = await preparedClusters(source, destination, options)
    await stepDowns?.prepare([source, destination])
    const databases = new RehearsalDatabases(options, { source, destination })
    try {
      await databases.claim()
      await refuseConflicts([source, destination], options, databases.claimDatabase)
    } catch (error) {
      for (const problem of await databases.release()) output.err(`error: ${printable(problem)}\n`)
      throw error
    }
    const run = new Run(options, {
      version,
      output,
      databases,
      stepDowns,
      clusters: { source, destination },
      facts,
    })
    const report = await run.report()
    const text = reportText(report)
    output.out(options.json ? `${JSON.stringify(report, null, 2)}\n` : text)
    if (file !== null) writeFileSync(file, text)
    return report.passed ? 0 : 1
  } catch (error) {
    output.err(`error: ${printable(textOf(error))}\n`)
    return 2
  } finally {
    await Promise.all([source.close(), destination.close(), stepDowns?.close()])
  }
}

const textOf = (error: unknown): string =>
  error instanceof RehearsalFailure ? redactUris(error.message) : errorText(error)

interface RunParts {
  version: string
  output: RehearseOutput
  databases: RehearsalDatabases
  /** Null if no primary is to step down. */
  stepDowns: StepDowns | null
  clusters: Record<'source' | 'destination', RehearsalCluster>
  facts: Record<'cluster0' | 'cluster1', ClusterFacts>
}

/** The probes, the sync, the comparisons and the cleanup of one rehearsal. */
class Run {
  readonly #options: RehearseOptions
  readonly #parts: RunParts
  readonly #seed: number

  constructor(options: RehearseOptions, parts: RunParts) {
    this.#options = options
    this.#parts = parts
    this.#seed = options.seed ?? randomInt(1_000_000)
  }

  /** Runs everything and returns the report. A failure of a phase is a part of the report. */
  async report(): Promise<RehearsalReport> {
    const { output, databases, stepDowns, facts, version } = this.#parts
    let probes: ProbeResult[] = []
    const done: RehearsedPhases = { sync: null, comparison: null, reverse: null }
    let failure: string | null = null
    try {
      probes = await this.#probe()
      // The cause of the failed probe could also stop the sync or make it lose changes. The sync would show this later.
      if (!probes.every(({ passed }) => passed)) throw new RehearsalFailure('a probe failed, so no sync was run')
      await this.#rehearse(done)
    } catch (error) {
      failure = output.signal.aborted ? 'interrupted' : textOf(error)
      this.#say(`FAILED: ${failure}`)
    }
    const problems = await databases.cleanUp()
    for (const problem of problems) this.#say(problem)
    const { sync, comparison, reverse } = done
    const isReverseEqual = !this.#options.reverse || reverse?.comparison.equal === true
    const areEqual = comparison?.equal === true && sync?.dryRun.verdict === 'equal' && isReverseEqual
    const passed = failure === null && probes.every((one) => one.passed) && areEqual && problems.length === 0
    return {
      passed,
      version,
      clusters: facts,
      seed: this.#seed,
      probes,
      ...done,
      stepDowns: stepDowns?.done ?? [],
      failure: [...(failure === null ? [] : [failure]), ...problems].join('; ') || null,
      estimate: estimateCopy(facts.cluster0.dataBytes, sync),
      touched: databases.all,
      notRehearsed: notRehearsed(this.#options, stepDowns?.omitted ?? []),
    }
  }

  async #probe(): Promise<ProbeResult[]> {
    const probes = [...readProbes, ...writeProbes, ...definitionProbes]
    const { signal } = this.#parts.output
    const results = await runProbes(probes, this.#parts.clusters, { database: this.#parts.databases.probes, signal })
    const failed = results.filter(({ passed }) => !passed)
    this.#say(`${results.length - failed.length} of ${results.length} probes passed`)
    for (const { name, answer } of failed) this.#say(`FAILED: ${name}: ${answer}`)
    return results
  }

  /** Runs the phases of the sync. Stores the result of each phase in `done` when the phase ends. */
  async #rehearse(done: RehearsedPhases): Promise<void> {
    const { megabytes, minutes, blockWrites, reverse } = this.#options
    const { clusters, databases, stepDowns, facts, output } = this.#parts
    const { signal } = output
    if (reverse) await databases.dropProbes()
    const isSharded = facts.cluster0.topology === 'sharded cluster'
    const seeding = { databases: databases.synced, megabytes, isSharded, seed: this.#seed }
    const bytes = await seedSource(clusters.source.client, seeding, signal)
    this.#say(`${(bytes / 1e6).toFixed(0)} MB of documents written to cluster0`)
    const rehearsal = new Rehearsal({
      clusters,
      databases: databases.synced,
      instances: databases.instances,
      starting: (start) => databases.sync.start(start),
      ...{ minutes, blockWrites, reverse, stepDowns, signal },
      seed: this.#seed,
      report: (line) => this.#say(line),
    })
    try {
      done.sync = await rehearsal.sync()
      done.comparison = await this.#compare()
      if (!reverse) return
      if (!done.comparison.equal) throw new RehearsalFailure('the clusters differ, so the sync was not reversed')
      const reversed = await rehearsal.reverse()
      done.reverse = { ...reversed, comparison: await this.#compare() }
    } finally {
      await rehearsal.stop()
    }
  }

  /** Compares all bytes of the synced databases on both clusters. */
  async #compare(): Promise<ComparisonResult> {
    const left = new AuditCluster('cluster0', this.#options.cluster0)
    const right = new AuditCluster('cluster1', this.#options.cluster1)
    try {
      const namespaces = this.#parts.databases.synced.map((database) => ({ database, collection: null }))
      const found = await audit(left, right, { namespaces, ignoreIndexes: false, maxDifferences: differencesMax })
      this.#say(
        found.equal
          ? 'both clusters are equal'
          : `DIFFERENT: ${found.totalDifferences} differences between the clusters`,
      )
      return {
        equal: found.equal,
        documents: found.documents.cluster0,
        differences: found.differences.map(differenceLine),
      }
    } finally {
      await Promise.all([left.close(), right.close()])
    }
  }

  #say(line: string): void {
    this.#parts.output.err(`rehearse: ${printable(line)}\n`)
  }
}

/** Returns the parts of a sync that this rehearsal leaves out, each with the option that includes it or the reason. */
function notRehearsed({ reverse, stepDowns, blockWrites }: RehearseOptions, omitted: readonly string[]): string[] {
  return [
    ...(reverse
      ? []
      : [
          'reverse, and write blocking on cluster0: a sync with a filter allows neither, and a sync without a filter would include your own databases; rehearse them with --reverse on clusters without other databases',
        ]),
    ...(blockWrites
      ? []
      : ['write blocking on cluster1: it applies to all databases of the cluster; add --blockWrites to rehearse it']),
    ...(stepDowns ? omitted : ['elections: add --stepDowns to rehearse them']),
  ]
}
