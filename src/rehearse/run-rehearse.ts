import { randomInt } from 'node:crypto'
import { writeFileSync } from 'node:fs'
import { audit } from '../comparison/audit.ts'
import { AuditCluster } from '../comparison/audit-cluster.ts'
import { differenceLine } from '../comparison/difference.ts'
import { errorText } from '../domain/error-text.ts'
import { metadataDatabase } from '../domain/namespace.ts'
import { printable } from '../domain/printable.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { definitionProbes } from './definition-probes.ts'
import { type ProbeResult, runProbes } from './probe.ts'
import { readProbes } from './read-probes.ts'
import { Rehearsal, type RehearsalResult } from './rehearsal.ts'
import { type ClusterFacts, RehearsalCluster } from './rehearsal-cluster.ts'
import { RehearsalFailure } from './rehearsal-failure.ts'
import { estimateCopy, type RehearsalReport, reportText } from './rehearsal-report.ts'
import { seedSource } from './seed.ts'
import { writeProbes } from './write-probes.ts'

export interface RehearseOptions {
  cluster0: string
  cluster1: string
  /** Prefix of the rehearsal's databases. */
  prefix: string
  /** How long the workload runs after the copy. */
  minutes: number
  /** Size of the data that is copied. */
  megabytes: number
  blockWrites: boolean
  /** Seed of the workload; null for a random one. */
  seed: number | null
  json: boolean
  /** A file for the report as Markdown; null for none. */
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
 * `tandem rehearse`: probes both clusters and runs a whole sync of generated data from cluster0 to cluster1, in databases
 * of its own, which it drops again. Returns the exit code: 0 passed, 1 a probe, the sync or the comparison failed,
 * 2 the rehearsal could not begin.
 */
export async function runRehearse(
  options: RehearseOptions,
  version: string,
  output: RehearseOutput,
): Promise<0 | 1 | 2> {
  const source = new RehearsalCluster('cluster0', options.cluster0)
  const destination = new RehearsalCluster('cluster1', options.cluster1)
  try {
    const clusters = await prepared(source, destination, options.prefix)
    const report = await new Run(options, version, output, { source, destination }, clusters).report()
    const text = reportText(report)
    if (options.report !== null) writeFileSync(options.report, text)
    output.out(options.json ? `${JSON.stringify(report, null, 2)}\n` : text)
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

/** Refuses to begin where anything of another sync or rehearsal exists. */
async function prepared(
  source: RehearsalCluster,
  destination: RehearsalCluster,
  prefix: string,
): Promise<RehearsalReport['clusters']> {
  const [cluster0, cluster1] = await Promise.all([source.readFacts(), destination.readFacts()])
  const [ours, theirs] = await Promise.all([source.processId(), destination.processId()])
  if (ours === theirs && ours !== 'undefined') {
    throw new RehearsalFailure('--cluster0 and --cluster1 lead to the same server; give two clusters')
  }
  for (const cluster of [source, destination]) {
    const occupied = await cluster.occupied(prefix)
    if (occupied.includes(metadataDatabase)) {
      throw new RehearsalFailure(
        `${cluster.name} has the database ${metadataDatabase}, so a sync of tandem is stored there; rehearse before it or after it has been removed`,
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

class Run {
  readonly #options: RehearseOptions
  readonly #version: string
  readonly #output: RehearseOutput
  readonly #clusters: Record<'source' | 'destination', RehearsalCluster>
  readonly #facts: Record<'cluster0' | 'cluster1', ClusterFacts>
  readonly #seed: number

  constructor(
    options: RehearseOptions,
    version: string,
    output: RehearseOutput,
    clusters: Record<'source' | 'destination', RehearsalCluster>,
    facts: Record<'cluster0' | 'cluster1', ClusterFacts>,
  ) {
    this.#options = options
    this.#version = version
    this.#output = output
    this.#clusters = clusters
    this.#facts = facts
    this.#seed = options.seed ?? randomInt(1_000_000)
  }

  get #databases(): [string, string] {
    return [`${this.#options.prefix}_one`, `${this.#options.prefix}_two`]
  }

  get #probeDatabase(): string {
    return `${this.#options.prefix}_probes`
  }

  async report(): Promise<RehearsalReport> {
    let probes: ProbeResult[] = []
    let sync: RehearsalResult | null = null
    let comparison: RehearsalReport['comparison'] = null
    let failure: string | null = null
    try {
      probes = await this.#probe()
      // A sync may stop or lose changes for the reason that a probe has found, and would only take longer to say so.
      if (!probes.every(({ passed }) => passed)) throw new RehearsalFailure('a probe failed, so no sync was run')
      sync = await this.#sync()
      comparison = await this.#compare()
    } catch (error) {
      failure = this.#output.signal.aborted ? 'interrupted' : textOf(error)
      this.#say(`FAILED: ${failure}`)
    }
    const left = await this.#cleanUp()
    const passed = probes.every((one) => one.passed) && comparison?.equal === true && left === null
    return {
      passed,
      version: this.#version,
      clusters: this.#facts,
      seed: this.#seed,
      probes,
      sync,
      comparison,
      failure: failure ?? left,
      estimate: estimateCopy(this.#facts.cluster0.dataBytes, sync),
      touched: [...this.#databases, this.#probeDatabase, metadataDatabase],
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
    const { signal } = this.#output
    const results = await runProbes(probes, this.#clusters, { database: this.#probeDatabase, signal })
    const failed = results.filter(({ passed }) => !passed)
    this.#say(`${results.length - failed.length} of ${results.length} probes passed`)
    for (const { name, answer } of failed) this.#say(`FAILED: ${name}: ${answer}`)
    return results
  }

  async #sync(): Promise<RehearsalResult> {
    const { megabytes, minutes, blockWrites } = this.#options
    const { signal } = this.#output
    const isSharded = this.#facts.cluster0.topology === 'sharded cluster'
    const seeding = { databases: this.#databases, megabytes, isSharded, seed: this.#seed }
    const bytes = await seedSource(this.#clusters.source.client, seeding, signal)
    this.#say(`${(bytes / 1e6).toFixed(0)} MB of documents written to cluster0`)
    return await new Rehearsal({
      clusters: this.#clusters,
      databases: this.#databases,
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
      const namespaces = this.#databases.map((database) => ({ database, collection: null }))
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

  /** Returns why it did not succeed, or null. */
  async #cleanUp(): Promise<string | null> {
    const names = [...this.#databases, this.#probeDatabase, metadataDatabase]
    try {
      for (const cluster of Object.values(this.#clusters)) {
        if (this.#options.blockWrites && cluster === this.#clusters.destination) {
          await cluster.client.db('admin').command({ setUserWriteBlockMode: 1, global: false })
        }
        await cluster.drop(names)
      }
      return null
    } catch (error) {
      return `the rehearsal's databases could not be dropped: ${errorText(error)}; drop ${names.join(', ')} on both clusters`
    }
  }

  #say(line: string): void {
    this.#output.err(`rehearse: ${printable(line)}\n`)
  }
}
