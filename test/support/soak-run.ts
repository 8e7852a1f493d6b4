import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import path from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { compareBoth } from './compare-both.ts'
import { type MetadataFigures, metadataFigures } from './metadata-figures.ts'
import { repositoryRoot } from './mongo-binaries.ts'
import { Random } from './random.ts'
import { RunningTeam } from './running-team.ts'
import type { Pair } from './scenario.ts'
import { seedData } from './seed-data.ts'
import { injectFaults, killOne, type SoakTarget } from './soak-faults.ts'
import { type LifeFigures, SoakWatch } from './soak-watch.ts'
import { Writing } from './soak-writing.ts'
import { checkHistory } from './team-history.ts'

const clusters = ['cluster0', 'cluster1'] as const

export interface SoakOptions {
  pair: Pair
  seed: string
  instances: number
}

export interface LegOptions {
  /** How long the application writes and faults happen; what comes after takes as long as it takes. */
  seconds: number
  /** Kinds of `soakFaultKinds`; with `kill` also at commits and reversals. */
  faults: readonly string[]
  /** Of the workload, steps a second. */
  paces?: readonly number[]
}

export interface LegReport {
  leg: number
  direction: string
  seed: string
  /** In all, and at the end of what: the time that the application and faults had, until all could commit, the commit. */
  seconds: number
  after: { faults: number; canCommit: number; committed: number }
  /** The largest of all instances when the commit was sent; null where none knew it. */
  lagSeconds: number | null
  operations: number
  faults: Record<string, number>
  events: number
  documents: number
  /** What is not as it should be: the leg has failed if there is any. */
  problems: string[]
  processes: LifeFigures[]
  /** Before the commit. */
  metadata: Record<(typeof clusters)[number], MetadataFigures>
}

const killAtCommit = 0.3
const killAtReversal = 0.2
const writeUntilBlocked = 0.5

/**
 * One sync that goes to and fro between two replica sets, by the same instances all the time: each leg is a direction, which
 * begins with a start or a reversal, goes on under the random workload and random faults, and ends with a commit and both
 * comparisons.
 */
export class SoakRun {
  readonly #options: SoakOptions
  readonly #folder: string
  readonly #team: RunningTeam
  #proxied: SoakTarget['proxied'] = null
  #legs = 0

  constructor(options: SoakOptions) {
    this.#options = options
    this.#folder = path.join(repositoryRoot, '.cache', `soak-${options.seed}`)
    const random = new Random(`soak ${options.seed}`)
    this.#team = new RunningTeam(options.pair, random, new AbortController().signal, startOf('cluster0', 'cluster1'))
  }

  /** Runs the next leg. Rejects when it cannot be brought to its end; no other may follow then. */
  async leg({ seconds, faults, paces }: LegOptions): Promise<LegReport> {
    const began = performance.now()
    const elapsed = (): number => Math.round((performance.now() - began) / 100) / 10
    const after = { faults: 0, canCommit: 0, committed: 0 }
    const leg = this.#legs++
    const seed = `${this.#options.seed} leg ${leg + 1}`
    const { cluster0, cluster1 } = { cluster0: this.#options.pair.source, cluster1: this.#options.pair.destination }
    const [from, to] = leg % 2 === 0 ? ([...clusters] as const) : ([clusters[1], clusters[0]] as const)
    const [source, destination] = leg % 2 === 0 ? [cluster0, cluster1] : [cluster1, cluster0]
    const random = new Random(`leg ${seed}`)
    const team = this.#team
    team.note(`leg ${leg + 1}: ${from} to ${to}`)
    if (leg === 0) {
      await seedData(source.uri, seed, 0.3)
      await this.#startAll()
    }
    const target: SoakTarget = {
      team,
      servers: { source, destination, random, counts: { faults: 0 } },
      spared: 'a',
      proxied: this.#proxied,
      start: startOf(from, to),
    }
    const counts: Record<string, number> = {}
    const watch = new SoakWatch(team, from)
    // The application of a set of one is not cut off when tandem is.
    const writer = source.uris.length === 1 ? (source.uris[0] as string) : source.uri
    const writing = new Writing(writer, seed, leg, random.fork('writing'), paces)
    try {
      const until = Date.now() + seconds * 1_000
      const command = leg === 0 ? 'start' : 'reverse'
      await this.#all(command, leg === 0 ? target.start : {})
      if (faults.includes('kill') && leg > 0 && random.chance(killAtReversal)) {
        await killOne(target)
        counts['kill while reversing'] = 1
      }
      if (faults.length > 0) await injectFaults(target, faults, until, counts)
      await sleep(Math.max(0, until - Date.now()))
      after.faults = elapsed()
      const untilBlocked = random.chance(writeUntilBlocked)
      if (!untilBlocked) await writing.stop()
      await team.allReach('canCommit', (progress) => progress.canCommit, 180)
      after.canCommit = elapsed()
      const metadata = await measure(cluster0.uri, cluster1.uri)
      const processes = await watch.stop()
      const lagSeconds = await this.#lag()
      team.committing = true
      await this.#all('commit')
      if (faults.includes('kill') && random.chance(killAtCommit)) {
        await killOne(target)
        counts['kill at commit'] = 1
      }
      await team.allReach('COMMITTED', ({ state, canWrite }) => state === 'COMMITTED' && canWrite === true, 180)
      after.committed = elapsed()
      team.committing = false
      team.deaths.length = 0
      await writing.stop()
      const { problems } = await checkHistory(destination.uri, [])
      const { differences, documents } = await compareBoth(cluster0.uri, cluster1.uri)
      const orphans = Object.entries(metadata).flatMap(([name, figures]) =>
        Object.entries(figures.orphans).map(
          ([collection, count]) => `${count} documents in ${collection} on ${name} belong to no collection any more`,
        ),
      )
      return {
        leg: leg + 1,
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

  /** The last one has proxies of its own where the destination has one member: discovery would go round them. */
  async #startAll(): Promise<void> {
    const team = this.#team
    const ids = ['a', 'b', 'c', 'd', 'e'].slice(0, this.#options.instances)
    for (const [at, id] of ids.entries()) {
      const logs = { extraArgs: ['--logPath', path.join(this.#folder, id)] }
      if (at < ids.length - 1 || at === 0 || this.#options.pair.source.hosts.length > 1) await team.start(id, logs)
      else {
        const { proxies, uris } = await team.ownProxies()
        this.#proxied = { id, proxies }
        await team.start(id, { ...logs, ...uris })
      }
    }
  }

  async #all(command: string, body: unknown = {}): Promise<void> {
    await Promise.all(this.#team.ids.map((id) => this.#team.command(id, command, body)))
  }

  async #lag(): Promise<number | null> {
    const all = await Promise.all(this.#team.ids.map((id) => this.#team.get(id).progress()))
    const known = all.flatMap(({ lagTimeSeconds }) => (lagTimeSeconds === null ? [] : [lagTimeSeconds]))
    return known.length === 0 ? null : Math.max(...known)
  }

  /** Ends the instances. Returns the folder with their logs, which is kept only then. */
  async stop(keep: boolean): Promise<string> {
    await this.#team.stop()
    const folder = path.relative(repositoryRoot, this.#folder)
    if (keep) {
      mkdirSync(this.#folder, { recursive: true })
      writeFileSync(path.join(this.#folder, 'notes.log'), this.#team.output())
    } else rmSync(this.#folder, { recursive: true, force: true })
    return folder
  }
}

/**
 * The metadata as it is when nothing stands in it of collections that are gone, or after fifteen seconds in which that never
 * was so: while collections come and go, there are always some whose drop is just being followed.
 */
async function measure(cluster0: string, cluster1: string): Promise<LegReport['metadata']> {
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
