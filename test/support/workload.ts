import { setTimeout as sleep } from 'node:timers/promises'
import { MongoClient } from 'mongodb'
import { Random } from './random.ts'
import { ddl } from './workload-ddl.ts'
import { dml } from './workload-dml.ts'
import { classify } from './workload-errors.ts'
import { transaction } from './workload-transactions.ts'
import { type Operation, World, workloadCollections, workloadDatabases } from './workload-world.ts'

export interface WorkloadOptions {
  readonly uri: string
  readonly seed: number | string
  readonly ddl: boolean
  readonly transactions: boolean
  readonly databases?: readonly string[]
  readonly collections?: readonly string[]
  /** Writes documents of 15.9 MB from time to time. */
  readonly huge?: boolean
  /** Share of steps that are DDL if `ddl` is set; 0.07 by default. */
  readonly ddlShare?: number
  /**
   * The first value of the field `u`, so that workloads on the same data use different values; 0 by default.
   */
  readonly sequenceFrom?: number
  /** Steps per second. One step may be a burst of two hundred updates. */
  readonly opsPerSecond?: number
  /** Receives one line for each step, to find the step that caused a failure. */
  readonly log?: (line: string) => void
}

interface WorkloadSummary {
  readonly steps: number
  readonly succeeded: Record<string, number>
  readonly refused: Record<string, number>
  readonly errors: Record<string, number>
  /**
   * Steps that failed because of elections and broken connections. After the first one, the same seed no longer gives
   * the same state.
   */
  readonly transient: number
  /** True if the source rejected user writes (`setUserWriteBlockMode`), which ends `run`. */
  readonly blocked: boolean
}

export interface Workload {
  run(signal: AbortSignal): Promise<void>
  runSteps(count: number): Promise<void>
  summary(): WorkloadSummary
}

type Step = readonly [weight: number, kind: string, operation: Operation]

/** Approximate percentage of steps that are transactions. */
const transactionWeight = 5
const ddlShare = 0.07
const idleWeight = 0.15

/**
 * The source is considered unreachable after more than this many steps have failed with transient errors, each after
 * the driver's own retries, and none has succeeded in between.
 */
const unreachableMax = 20

/**
 * Creates a random writer that uses only the source. Steps run sequentially and every choice comes from the seed, so
 * the same seed on an equal server runs the same operations and leaves the same bytes.
 */
export function createWorkload(options: WorkloadOptions): Workload {
  const random = new Random(options.seed)
  const counts = { steps: 0, transient: 0, blocked: false }
  let unreachable = 0
  const sequence = { at: options.sequenceFrom ?? 0 }
  const succeeded: Record<string, number> = {}
  const refused: Record<string, number> = {}
  const errors: Record<string, number> = {}
  const add = (table: Record<string, number>, name: string) => {
    table[name] = (table[name] ?? 0) + 1
  }
  const dmlSteps: Step[] = options.transactions ? [...dml, [transactionWeight, 'transaction', transaction]] : [...dml]
  const idleStep: Step = [idleWeight, 'idle', async () => {}]

  async function step(world: World, idle: boolean): Promise<void> {
    const changesCatalog = options.ddl && random.chance(options.ddlShare ?? ddlShare)
    const steps = changesCatalog ? ddl : [...dmlSteps, idleStep]
    const [, kind, operation] = random.weighted(steps.map((one) => [one[0], one] as const))
    const number = counts.steps++
    world.target = ''
    let result = 'ok'
    if (kind === 'idle') {
      const milliseconds = random.int(300, 1500)
      if (idle) await sleep(milliseconds)
    }
    try {
      await operation(world)
      unreachable = 0
      add(succeeded, kind)
    } catch (error) {
      const outcome = classify(error)
      result = outcome.name
      if (outcome.kind === 'unexpected') {
        const message = `workload seed ${options.seed}, step ${number}, ${kind} on ${world.target}`
        throw new Error(`${message}: ${outcome.name}`, { cause: error })
      }
      add(outcome.kind === 'transient' ? errors : refused, outcome.kind === 'transient' ? result : kind)
      if (outcome.kind === 'natural') add(errors, result)
      if (outcome.kind === 'transient') {
        if (++unreachable > unreachableMax) throw error
        counts.transient++
        await sleep(100)
      }
      if (outcome.kind === 'blocked') counts.blocked = true
    }
    options.log?.(`#${number} ${kind} ${world.target}: ${result}`)
    // Inserts create collections too.
    if (changesCatalog || (world.target !== '' && !world.knows(world.target))) await refresh(world)
  }

  /**
   * Reads the catalog again. It ignores a transient error, because an outdated catalog only causes more rejected
   * operations.
   */
  async function refresh(world: World): Promise<void> {
    try {
      await world.refresh()
    } catch (error) {
      if (classify(error).kind !== 'transient') throw error
    }
  }

  async function withWorld(work: (world: World) => Promise<void>): Promise<void> {
    // A weak write concern is fast and safe here: a write that a failover rolls back does not exist on the source.
    const client = new MongoClient(options.uri, { writeConcern: { w: 1 } })
    try {
      const world = new World(client, random, {
        huge: options.huge ?? false,
        ddl: options.ddl,
        databases: options.databases ?? workloadDatabases,
        names: options.collections ?? workloadCollections,
        sequence,
      })
      await world.refresh()
      if (!options.ddl) await world.createFixed()
      await work(world)
    } finally {
      await client.close()
    }
  }

  return {
    run: (signal) =>
      withWorld(async (world) => {
        const start = performance.now()
        for (let done = 0; !signal.aborted && !counts.blocked; done++) {
          await step(world, true)
          const ahead = options.opsPerSecond ? (done / options.opsPerSecond) * 1000 - (performance.now() - start) : 0
          if (ahead > 0) await sleep(ahead)
        }
      }),
    runSteps: (count) =>
      withWorld(async (world) => {
        for (let i = 0; i < count && !counts.blocked; i++) await step(world, false)
      }),
    summary: () => ({ ...counts, succeeded: { ...succeeded }, refused: { ...refused }, errors: { ...errors } }),
  }
}
