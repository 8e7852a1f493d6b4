import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { repositoryRoot } from '../test/support/mongo-binaries.ts'
import { startSync, startTandem, type Tandem } from '../test/support/tandem-process.ts'
import type { Link } from './delaying-proxy.ts'
import type { Server } from './servers.ts'

/**
 * Intervals at which progress is polled. Near the end of the copy the interval is short, so that the end is measured
 * precisely. Before that it is long, so that the cost of polling does not affect the figure.
 */
const farPollMS = 100
const nearPollMS = 10
const nearShare = 0.9
/** Requests for the progress of several instances cost CPU, which is measured, so they are as rare as those of a person. */
const sharedPollMS = 500

export interface BenchOptions {
  runs: number
  /** Share of the full work, above 0 and at most 1. */
  scale: number
  /** WiredTiger cache size of each server in GB. */
  cacheSizeGB: number
  /** The link between tandem and each cluster. */
  link: Link
  /** Shards of each cluster in the section `sharded`. */
  shards: number
  /** Folder to which each tandem process writes a CPU profile. */
  profile: string | undefined
}

/** Starts the command-line program and waits until it is connected to both servers and ready for `start`. */
export async function startReady(
  { source, destination }: Record<'source' | 'destination', Pick<Server, 'linkUri'>>,
  options: BenchOptions,
  env: Record<string, string> = {},
): Promise<Tandem> {
  const tandem = await startTandem({
    cluster0: source.linkUri,
    cluster1: destination.linkUri,
    env: { ...env, ...(options.profile ? profiling(options.profile) : {}) },
  })
  while (!(await tandem.progress().catch(() => null))) await delay(nearPollMS)
  return tandem
}

/** Starts this many instances, each ready for `start`. The caller stops them. */
export async function startInstances(
  count: number,
  { source, destination }: Record<'source' | 'destination', Pick<Server, 'linkUri'>>,
  options: BenchOptions,
): Promise<Tandem[]> {
  const clusters = { cluster0: source.linkUri, cluster1: destination.linkUri }
  const env = options.profile ? { env: profiling(options.profile) } : {}
  const instances = await Promise.all(
    Array.from({ length: count }, (_, at) => startTandem({ ...clusters, id: `instance${at}`, ...env })),
  )
  for (const instance of instances) while (!(await instance.progress().catch(() => null))) await delay(nearPollMS)
  return instances
}

/** Sends `start` to every instance, by default without the verifier, and resolves when `canCommit` is true in all. */
export async function syncAllUntilCanCommit(
  instances: readonly Tandem[],
  start: Record<string, unknown> = {},
): Promise<void> {
  await Promise.all(instances.map((instance) => startSync(instance, { verification: { enabled: false }, ...start })))
  for (const instance of instances) {
    for (;;) {
      const { canCommit, state, failure } = await instance.progress()
      if (canCommit) break
      if (state === 'FAILED') throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${instance.output()}`)
      await delay(sharedPollMS)
    }
  }
}

function profiling(folder: string): Record<string, string> {
  const profiler = pathToFileURL(path.join(repositoryRoot, 'dist/bench/profile.js'))
  return { NODE_OPTIONS: `--import ${profiler}`, BENCH_PROFILES: folder }
}

/** Sends `start` as an operator does, by default without the verifier, and resolves when `canCommit` is true. */
export async function syncUntilCanCommit(tandem: Tandem, start: Record<string, unknown> = {}): Promise<void> {
  await startSync(tandem, { verification: { enabled: false }, ...start })
  for (;;) {
    const { canCommit, collectionCopy, state, failure } = await tandem.progress()
    if (canCommit) return
    if (state === 'FAILED') throw new Error(`tandem failed: ${JSON.stringify(failure)}\n${tandem.output()}`)
    const { estimatedCopiedBytes: copied, estimatedTotalBytes: total } = collectionCopy ?? {}
    await delay((copied ?? 0) > nearShare * (total ?? 1) ? nearPollMS : farPollMS)
  }
}
