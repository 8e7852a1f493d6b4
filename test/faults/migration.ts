import { mkdirSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { MongoClient } from 'mongodb'
import { compareBoth } from '../support/compare-both.ts'
import { emptyCluster } from '../support/empty-cluster.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import type { Random } from '../support/random.ts'
import type { Clusters } from './clusters.ts'
import { RunningInstances } from './running-instances.ts'

export interface MigrationOptions<Of extends Clusters> {
  clusters: Of
  /** Part of the name of the file with the instances' output. */
  name: string
  /** Generator of the faults' random choices. */
  random: Random
  /** Databases on the source that are kept from run to run. */
  keep?: readonly string[]
  /** Fields of the body of `start`, in addition to the names of the clusters. */
  start?: Record<string, unknown>
}

export interface RunningMigration<Of extends Clusters> {
  clusters: Of
  random: Random
  instances: RunningInstances
  /** Problems that were found; empty when the run passes. */
  problems: string[]
  /** Compares both clusters by both comparisons and records each difference as a problem. */
  compare(expected?: Parameters<typeof compareBoth>[2]): Promise<void>
  /** Called instead of `compare` when the clusters are not expected to be equal at the end. */
  endsWithoutComparison(): void
  /** Registers a function that is always called at the end, before the instances are stopped. The last registered is called first. */
  atEnd(close: () => Promise<unknown>): void
}

export type MigrationResult<Result> = Result & {
  problems: string[]
  /** Documents that were compared. */
  documents: number
}

/**
 * Runs one migration of a fault plan, from two empty clusters to the comparison of both. `course` loads the data, starts the
 * instances, injects the faults and commits. If anything fails, the output of all instances is kept. All instances are always stopped.
 */
export async function runMigration<Of extends Clusters, Result extends object>(
  options: MigrationOptions<Of>,
  course: (migration: RunningMigration<Of>) => Promise<Result>,
): Promise<MigrationResult<Result>> {
  const { clusters, random, keep = [], start = {} } = options
  await emptyBothClusters(clusters, keep)
  const instances = new RunningInstances(clusters, random, { source: 'cluster0', destination: 'cluster1', ...start })
  const problems: string[] = []
  const closers: (() => Promise<unknown>)[] = []
  let documents: number | null = null
  const migration: RunningMigration<Of> = {
    clusters,
    random,
    instances,
    problems,
    compare: async (expected) => {
      const compared = await compareBoth(clusters.source.uri, clusters.destination.uri, expected)
      problems.push(...compared.differences)
      documents = compared.documents
      instances.note('compared')
    },
    endsWithoutComparison: () => {
      documents = 0
    },
    atEnd: (close) => closers.unshift(close),
  }
  try {
    const result = await course(migration)
    if (documents === null) throw new Error('the migration ended without a comparison of the clusters')
    if (problems.length > 0 || process.env['TANDEM_KEEP_OUTPUT']) {
      const file = keepOutput(instances, options.name, problems.join('\n'))
      if (problems.length > 0) problems.push(`output of the instances: ${file}`)
    }
    return { ...result, problems, documents }
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error)
    const file = keepOutput(instances, options.name, message)
    throw new Error(`${message}\noutput of the instances: ${file}`, { cause: error })
  } finally {
    instances.end()
    for (const close of closers) await close().catch(() => {})
    await instances.stop()
  }
}

/** Empties both clusters except for the databases that are kept on the source, and lifts write blocks. */
async function emptyBothClusters({ source, destination }: Clusters, keep: readonly string[]): Promise<void> {
  for (const [uri, kept] of [
    [source.uri, keep],
    [destination.uri, []],
  ] as const) {
    await using client = await MongoClient.connect(uri)
    await emptyCluster(client, kept)
  }
}

function keepOutput(instances: RunningInstances, name: string, what: string): string {
  const folder = path.join(repositoryRoot, '.cache')
  mkdirSync(folder, { recursive: true })
  const file = path.join(folder, `${name.replaceAll(/[^\w.]+/g, '-')}.log`)
  writeFileSync(file, `${what}\n${instances.output()}`)
  return path.relative(repositoryRoot, file)
}
