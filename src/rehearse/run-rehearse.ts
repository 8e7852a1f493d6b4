import { randomInt } from 'node:crypto'
import { openSync, writeFileSync } from 'node:fs'
import { audit } from '../comparison/audit.ts'
import { AuditCluster } from '../comparison/audit-cluster.ts'
import { differenceLine } from '../comparison/difference.ts'
import { errorText } from '../domain/error-text.ts'
import { metadataDatabases } from '../domain/namespace.ts'
import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { definitionProbes } from './definition-probes.ts'
import { type ProbeResult, runProbes } from './probe.ts'
import { readProbes } from './read-probes.ts'
import { Rehearsal, type RehearsalResult } from './rehearsal.ts'
import { type ClusterFacts, RehearsalCluster } from './rehearsal-cluster.ts'
import { RehearsalDatabases } from './rehearsal-databases.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'
import { estimateCopy, type RehearsalReport, reportText } from './rehearsal-report.ts'
import { seedSource } from './seed.ts'
import { writeProbes } from './write-probes.ts'

export interface RehearseOptions {
  cluster0: string
  cluster1: string
  /** Prefix of the names of the rehearsal's databases. */
  prefix: string
  /** How long the workload runs after the copy. */
  minutes: number
  /** Size of the data to copy. */
  megabytes: number
  blockWrites: boolean
  /** Seed of the workload; null for a random one. */
  seed: number | null
  json: boolean
  /** The file for the report as Markdown; null if none is wanted. */
  report: string | null
}

export interface RehearseOutput {
  out: (text: string) => unknown
  err: (text: string) => unknown
  /** Aborts the rehearsal, which then cleans up. */
  signal: AbortSignal
}

const differencesMax = 20

/**
 * `tandem rehearse`: probes both clusters and runs a whole sync of generated data from cluster0 to cluster1, in
 * databases of its own, which it drops again. Returns the exit code: 0 if everything passed, 1 if a probe, the sync or
 * the comparison failed, and 2 if the rehearsal could not begin.
 */
export async function runRehearse(
  options: RehearseOptions,
  version: string,
  output: RehearseOutput,
): Promise<0 | 1 | 2> {
  const source = new RehearsalCluster('cluster0', options.cluster0)
  const destination = new RehearsalCluster('cluster1', options.cluster1)
  try {
    // The file is opened now, so that a file that cannot be written is reported before the rehearsal.
    const file = options.report === null ? null : openSync(options.report, 'w')
    const clusters = await prepared(source, destination, options)
    const databases = new RehearsalDatabases(options.prefix, { source, destination })
    await databases.claim().catch(async (error) => {
      for (const problem of await databases.cleanUp(false)) output.err(`error: ${printable(problem)}\n`)
      throw error
    })
    const run = new Run(options, { version, output, databases, clusters: { source, destination }, facts: clusters })
    const report = await run.report()
    const text = reportText(report)
    output.out(options.json ? `${JSON.stringify(report, null, 2)}\n` : text)
    if (file !== null) writeFileSync(file, text)
    return report.passed ? 0 : 1
  } catch (error) {
    output.err(`error: ${printable(textOf(error))}\n`)
    return 2
  } finally {
    await Promise.all([source.close(), destination.close()])
  }
}

const textOf = (error: unknown): string =>
  error instanceof RehearsalFailure ? redactUris(error.message) : errorText(error)

/**
 * Returns facts about the clusters. Throws RehearsalFailure if they are not fit for a rehearsal, for example because
 * they have the metadata of a sync or databases of another rehearsal.
 */
async function prepared(
  source: RehearsalCluster,
  destination: RehearsalCluster,
  { prefix, blockWrites }: RehearseOptions,
): Promise<RehearsalReport['clusters']> {
  const [cluster0, cluster1] = await Promise.all([source.readFacts(), destination.readFacts()])
  const [ours, theirs] = await Promise.all([source.processId(), destination.processId()])
  if (ours === theirs && ours !== 'undefined') {
    throw new RehearsalFailure('--cluster0 and --cluster1 lead to the same server; give two clusters')
  }
  if (source.major < 6 && !blockWrites) {
    throw new RehearsalFailure(
      `a sync from ${cluster0.version} always blocks user writes on cluster1, because a source older than 6.0 does not allow another enableUserWriteBlocking; add --blockWrites if all writers of cluster1 may be stopped`,
    )
  }
  if (blockWrites && (await destination.isBlocked())) {
    throw new RehearsalFailure(
      'cluster1 blocks user writes already, and a rehearsal with --blockWrites would allow them; leave --blockWrites out',
    )
  }
  for (const cluster of [source, destination]) {
    const occupied = await cluster.occupied(prefix)
    const stored = metadataDatabases.find((name) => occupied.includes(name))
    if (stored !== undefined) {
      throw new RehearsalFailure(
        `${cluster.name} has the database ${stored}, so a sync of tandem is stored there; rehearse before that sync begins or after it has been removed`,
      )
    }
    if (occupied.length > 0) {
      throw new RehearsalFailure(
        `${cluster.name} already has the databases ${occupied.join(', ')}; give another --prefix, or drop them if they are left from a rehearsal that was killed`,
      )
    }
  }
  return { cluster0, cluster1 }
}

interface RunParts {
  version: string
  output: RehearseOutput
  databases: RehearsalDatabases
  clusters: Record<'source' | 'destination', RehearsalCluster>
  facts: Record<'cluster0' | 'cluster1', ClusterFacts>
}

class Run {
  readonly #options: RehearseOptions
  readonly #parts: RunParts
  readonly #seed: number

  constructor(options: RehearseOptions, parts: RunParts) {
    this.#options = options
    this.#parts = parts
    this.#seed = options.seed ?? randomInt(1_000_000)
  }

  async report(): Promise<RehearsalReport> {
    let probes: ProbeResult[] = []
    let sync: RehearsalResult | null = null
    let comparison: RehearsalReport['comparison'] = null
    let failure: string | null = null
    try {
      probes = await this.#probe()
      // The same cause could stop the sync or make it lose changes, and a sync would take longer to show this.
      if (!probes.every(({ passed }) => passed)) throw new RehearsalFailure('a probe failed, so no sync was run')
      sync = await this.#sync()
      comparison = await this.#compare()
    } catch (error) {
      failure = this.#parts.output.signal.aborted ? 'interrupted' : textOf(error)
      this.#say(`FAILED: ${failure}`)
    }
    const left = await this.#parts.databases.cleanUp(this.#options.blockWrites)
    for (const problem of left) this.#say(problem)
    const isEqual = comparison?.equal === true && sync?.dryRun.verdict === 'equal'
    const passed = probes.every((one) => one.passed) && isEqual && left.length === 0
    return {
      passed,
      version: this.#parts.version,
      clusters: this.#parts.facts,
      seed: this.#seed,
      probes,
      sync,
      comparison,
      failure: [...(failure === null ? [] : [failure]), ...left].join('; ') || null,
      estimate: estimateCopy(this.#parts.facts.cluster0.dataBytes, sync),
      touched: [...this.#parts.databases.synced, this.#parts.databases.probes, ...metadataDatabases],
      notRehearsed: [
        'write blocking on cluster0, which is not possible with a filter',
        'reverse: a sync with a filter cannot be reversed, and without one your own databases would be synced',
        ...(this.#options.blockWrites
          ? []
          : [
              'write blocking on cluster1: it holds for all databases of the cluster; add --blockWrites to rehearse it',
            ]),
      ],
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

  async #sync(): Promise<RehearsalResult> {
    const { megabytes, minutes, blockWrites } = this.#options
    const { signal } = this.#parts.output
    const isSharded = this.#parts.facts.cluster0.topology === 'sharded cluster'
    const seeding = { databases: this.#parts.databases.synced, megabytes, isSharded, seed: this.#seed }
    const bytes = await seedSource(this.#parts.clusters.source.client, seeding, signal)
    this.#say(`${(bytes / 1e6).toFixed(0)} MB of documents written to cluster0`)
    return await new Rehearsal({
      clusters: this.#parts.clusters,
      databases: this.#parts.databases.synced,
      minutes,
      blockWrites,
      seed: this.#seed,
      signal,
      report: (line) => this.#say(line),
    }).run()
  }

  async #compare(): Promise<NonNullable<RehearsalReport['comparison']>> {
    const left = new AuditCluster('cluster0', this.#options.cluster0)
    const right = new AuditCluster('cluster1', this.#options.cluster1)
    try {
      const namespaces = this.#parts.databases.synced.map((database) => ({ database, collection: null }))
      const found = await audit(left, right, { namespaces, ignoreIndexes: false, maxDifferences: differencesMax })
      this.#say(found.equal ? 'both clusters are equal' : `DIFFERENT in ${found.totalDifferences}`)
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
