import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { compareBoth } from '../support/compare-both.ts'
import { repositoryRoot } from '../support/mongo-binaries.ts'
import { Random } from '../support/random.ts'
import { seedData } from '../support/seed-data.ts'
import type { Pair } from './clusters.ts'
import { type MetadataFigures, metadataFigures } from './metadata-figures.ts'
import { checkHistory } from './ownership-history.ts'
import { RunningInstances } from './running-instances.ts'
import { injectFaults, killOne, type SoakTarget } from './soak-faults.ts'
import { type ProcessCycleFigures, SoakWatch } from './soak-watch.ts'
import { Writing } from './soak-writing.ts'

const clusters = ['cluster0', 'cluster1'] as const

export interface SoakOptions {
  pair: Pair
  seed: string
  instances: number
}

export interface CycleOptions {
  /** Seconds in which the application writes and faults are injected. The rest of the cycle has no time limit. */
  seconds: number
  /** Some of `soakFaultKinds`. With `kill`, instances are also killed at commits and reversals. */
  faults: readonly string[]
  /** Rates of the workload, in steps per second. */
  paces?: readonly number[]
}

export interface CycleReport {
  cycle: number
  direction: string
  seed: string
  /** Duration of the whole cycle. `after` gives the seconds from its beginning until the faults were over, all could commit, and all had committed. */
  seconds: number
  after: { faults: number; canCommit: number; committed: number }
  /** The largest lag of all instances when the commit was sent; null if no instance knew it. */
  lagSeconds: number | null
  operations: number
  faults: Record<string, number>
  events: number
  documents: number
  /** Problems that were found. The cycle has passed if there are none. */
  problems: string[]
  processes: ProcessCycleFigures[]
  /** Metadata on each cluster before the commit. */
  metadata: Record<(typeof clusters)[number], MetadataFigures>
}

const killAtCommit = 0.3
const killAtReversal = 0.2
const writeUntilBlocked = 0.5

/**
 * Runs one sync back and forth between two replica sets, always with the same instances. Each cycle is one direction:
 * it begins with a start or a reversal, continues under the random workload and random faults, and ends with a commit
 * and both comparisons.
 */
export class SoakRun {
  readonly #options: SoakOptions
  readonly #folder: string
  readonly #instances: RunningInstances
  #proxied: SoakTarget['proxied'] = null
  #cycles = 0

  constructor(options: SoakOptions) {
    this.#options = options
    this.#folder = path.join(repositoryRoot, '.cache', `soak-${options.seed}`)
    const random = new Random(`soak ${options.seed}`)
    this.#instances = new RunningInstances(options.pair, random, startOf('cluster0', 'cluster1'))
  }

  /** Runs the next cycle. Rejects if the cycle cannot be completed; then no other cycle may follow. */
  async cycle({ seconds, faults, paces }: CycleOptions): Promise<CycleReport> {
    const began = performance.now()
    const elapsed = (): number => Math.round((performance.now() - began) / 100) / 10
    const after = { faults: 0, canCommit: 0, committed: 0 }
    const cycle = this.#cycles++
    // The word `leg` is part of the seed: another word would not reproduce the runs of past releases.
    const seed = `${this.#options.seed} leg ${cycle + 1}`
    const { cluster0, cluster1 } = { cluster0: this.#options.pair.source, cluster1: this.#options.pair.destination }
    const [from, to] = cycle % 2 === 0 ? ([...clusters] as const) : ([clusters[1], clusters[0]] as const)
    const [source, destination] = cycle % 2 === 0 ? [cluster0, cluster1] : [cluster1, cluster0]
    const random = new Random(`leg ${seed}`)
    const instances = this.#instances
    instances.note(`cycle ${cycle + 1}: ${from} to ${to}`)
    if (cycle === 0) {
      await seedData(source.uri, seed, 0.3)
      await this.#startAll()
    }
    const target: SoakTarget = {
      instances,
      servers: { source, destination, random, counts: { faults: 0 } },
      spared: 'a',
      proxied: this.#proxied,
      start: startOf(from, to),
    }
    const counts: Record<string, number> = {}
    const watch = new SoakWatch(instances, from)
    // In a set of one member, the application connects past the proxies, so it keeps its connections when tandem's are cut.
    const writer = source.uris.length === 1 ? (source.uris[0] as string) : source.uri
    const writing = new Writing(writer, seed, cycle, random.fork('writing'), paces)
    try {
      const until = Date.now() + seconds * 1_000
      const command = cycle === 0 ? 'start' : 'reverse'
      await this.#all(command, cycle === 0 ? target.start : {})
      if (faults.includes('kill') && cycle > 0 && random.chance(killAtReversal)) {
        await killOne(target)
        counts['kill while reversing'] = 1
      }
      if (faults.length > 0) await injectFaults(target, faults, until, counts)
      await sleep(Math.max(0, until - Date.now()))
      after.faults = elapsed()
      const untilBlocked = random.chance(writeUntilBlocked)
      if (!untilBlocked) await writing.stop()
      await instances.allCanCommit(180, () => writing.stop().catch(() => {}))
      after.canCommit = elapsed()
      const metadata = await measure(cluster0.uri, cluster1.uri)
      const processes = await watch.stop()
      const lagSeconds = await this.#lag()
      instances.committing = true
      await this.#all('commit')
      if (faults.includes('kill') && random.chance(killAtCommit)) {
        await killOne(target)
        counts['kill at commit'] = 1
      }
      await instances.allReach('COMMITTED', ({ state, canWrite }) => state === 'COMMITTED' && canWrite === true, 180)
      after.committed = elapsed()
      instances.committing = false
      instances.deaths.length = 0
      await writing.stop()
      const { problems } = await checkHistory(destination.uri, [])
      const { differences, documents } = await compareBoth(cluster0.uri, cluster1.uri)
      const orphans = Object.entries(metadata).flatMap(([name, figures]) =>
        Object.entries(figures.orphans).map(
          ([collection, count]) =>
            `${count} documents in ${collection} on ${name} belong to a collection that no longer exists`,
        ),
      )
      return {
        cycle: cycle + 1,
        direction: `${from} to ${to}`,
        seed,
        seconds: elapsed(),
        after,
        lagSeconds,
        operations: writing.operations,
        faults: counts,
        events: watch.events,
        documents,
        problems: [...problems, ...differences, ...orphans],
        processes,
        metadata,
      }
    } finally {
      await Promise.all([writing.stop().catch(() => {}), watch.stop().catch(() => {})])
    }
  }

  /** Starts all instances. The last one has its own proxies if the sets have one member; with several members, discovery would bypass them. */
  async #startAll(): Promise<void> {
    const instances = this.#instances
    const ids = ['a', 'b', 'c', 'd', 'e'].slice(0, this.#options.instances)
    for (const [at, id] of ids.entries()) {
      const logs = { extraArgs: ['--logPath', path.join(this.#folder, id)] }
      if (at < ids.length - 1 || at === 0 || this.#options.pair.source.hosts.length > 1) await instances.start(id, logs)
      else {
        const { proxies, uris } = await instances.ownProxies()
        this.#proxied = { id, proxies }
        await instances.start(id, { ...logs, ...uris })
      }
    }
  }

  async #all(command: string, body: unknown = {}): Promise<void> {
    await Promise.all(this.#instances.ids.map((id) => this.#instances.command(id, command, body)))
  }

  async #lag(): Promise<number | null> {
    const all = await Promise.all(this.#instances.ids.map((id) => this.#instances.get(id).progress()))
    const known = all.flatMap(({ lagTimeSeconds }) => (lagTimeSeconds === null ? [] : [lagTimeSeconds]))
    return known.length === 0 ? null : Math.max(...known)
  }

  /** Ends the instances. Returns the folder with their logs, which is removed unless `keep`. */
  async stop(keep: boolean): Promise<string> {
    await this.#instances.stop()
    const folder = path.relative(repositoryRoot, this.#folder)
    if (keep) {
      mkdirSync(this.#folder, { recursive: true })
      writeFileSync(path.join(this.#folder, 'notes.log'), this.#instances.output())
    } else rmSync(this.#folder, { recursive: true, force: true })
    return folder
  }
}

/**
 * Measures the metadata at a moment when it contains nothing of dropped collections. If there is no such moment for
 * fifteen seconds, it measures anyway, because some drop may always be in progress under the workload.
 */
async function measure(cluster0: string, cluster1: string): Promise<CycleReport['metadata']> {
  const deadline = Date.now() + 15_000
  for (;;) {
    const figures = { cluster0: await metadataFigures(cluster0), cluster1: await metadataFigures(cluster1) }
    const clean = Object.values(figures).every(({ orphans }) => Object.keys(orphans).length === 0)
    if (clean || Date.now() > deadline) return figures
    await sleep(250)
  }
}

function startOf(source: string, destination: string): Record<string, unknown> {
  return { source, destination, reversible: true, enableUserWriteBlocking: 'sourceAndDestination' }
}
