import path from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { pathToFileURL } from 'node:url'
import { repositoryRoot } from '../test/support/mongo-binaries.ts'
import { startSync, startTandem, type Tandem } from '../test/support/tandem-process.ts'
import type { Pair } from './servers.ts'

/** Often enough for the figure, seldom enough not to be part of it. */
const farPollMS = 100
const nearPollMS = 10
const nearShare = 0.9

export interface BenchOptions {
  runs: number
  /** 1, or less for less work. */
  scale: number
  /** Of each server. */
  cacheSizeGB: number
  /** Where each tandem process leaves a CPU profile. */
  profile: string | undefined
}

/** The command line program, connected to both servers and waiting for its start command. */
export async function startReady({ source, destination }: Pair, options: BenchOptions): Promise<Tandem> {
  const tandem = await startTandem({
    cluster0: source.tandemUri,
    cluster1: destination.tandemUri,
    ...(options.profile ? { env: profiling(options.profile) } : {}),
  })
  while (!(await tandem.progress().catch(() => null))) await delay(nearPollMS)
  return tandem
}

function profiling(folder: string): Record<string, string> {
  const profiler = pathToFileURL(path.join(repositoryRoot, 'dist/bench/profile.js'))
  return { NODE_OPTIONS: `--import ${profiler}`, TANDEM_BENCH_PROFILES: folder }
}

/** Sends start as an operator would (without the verifier unless asked for) and resolves as soon as the sync could be committed. */
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
