import { randomBytes } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { setWriteBlocking } from '../commit/write-blocking.ts'
import type { Liveness } from '../coordination/liveness.ts'
import { MongoLiveness } from '../coordination/mongo-liveness.ts'
import { errorText, unreachableText } from '../domain/error-text.ts'
import { FatalError, RefusedError, StoppedError, toFailure } from '../domain/errors.ts'
import { databasesOfSync } from '../domain/namespace.ts'
import { printable } from '../domain/printable.ts'
import type { RedisTls } from '../domain/redis-url.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { restoreBalancer } from '../mongo/balancer.ts'
import { Cluster, type ClusterName } from '../mongo/cluster.ts'
import { code, codeOf, isTransient, toFatal } from '../mongo/errors.ts'
import { type ClusterFacts, readFacts } from '../mongo/identity.ts'
import { leaseMS } from '../mongo/lease-watch.ts'
import { Metadata, type SyncRecord } from '../mongo/metadata.ts'
import { type RetryContext, RetryMonitor, retry } from '../mongo/retry.ts'
import { clusterNames, findStoredSync, redisScope } from '../session/find-stored.ts'
import { endWrites } from './end-writes.ts'
import { type DatabaseOf, liveInstances } from './live-instances.ts'
import { refuseOtherMoves } from './other-moves.ts'
import { type CleanPlan, isClean, planClean, planLines } from './plan-clean.ts'
import { LeftReservation } from './reservation.ts'

/** `tandem clean`: removes what an abandoned sync has left on both clusters. */

export interface CleanOptions {
  cluster0: string
  cluster1: string
  /** The address of the instances' Redis; null if they use none. */
  redis: string | null
  redisTls: RedisTls
  /** The name of the sync; null if it has none. */
  syncName: string | null
  /** Clusters on which user writes are allowed again, even if the sync did not block them. */
  unblock: ClusterName[]
  /** Change the clusters without asking for confirmation. */
  yes: boolean
  /** Change nothing, and do not ask for confirmation. */
  dryRun: boolean
  json: boolean
}

export interface CleanOutput {
  out: (text: string) => unknown
  err: (text: string) => unknown
  /** Asks the operator for confirmation. Absent without a terminal. */
  confirm?: (lines: readonly string[]) => Promise<boolean>
}

/** Documented in docs/cli.md. */
const exitCodes = { clean: 0, notCleaned: 1, invalid: 2, refused: 4, failed: 6 } as const
type ExitCode = (typeof exitCodes)[keyof typeof exitCodes]

/** Retries of a phase end after this time, because an operator waits for the result. */
const patienceMS = 60_000

/**
 * The plan was not carried out, because an instance is or may be alive, or because the plan no longer fits the
 * clusters. At most, instances whose leases were not renewed have been evicted.
 */
class CleanRefusal extends Error {}

export async function runClean(options: CleanOptions, output: CleanOutput): Promise<ExitCode> {
  let cleaning: Cleaning | null = null
  try {
    cleaning = new Cleaning(options, output)
    return await cleaning.run()
  } catch (error) {
    if (error instanceof CleanRefusal) {
      output.err(`error: ${printable(error.message)}\n`)
      return exitCodes.refused
    }
    output.err(`error: ${printable(redactUris(descriptionOf(error)))}\n`)
    return cleaning?.hasBegun ? exitCodes.failed : exitCodes.invalid
  } finally {
    await cleaning?.close()
  }
}

function descriptionOf(error: unknown): string {
  if (error instanceof StoppedError)
    return `a cluster did not answer, or still ran a write of an ended instance, after ${patienceMS / 1_000} seconds; run clean again`
  const cause = error instanceof FatalError ? error.cause : error
  if (codeOf(cause) === code.unauthorized)
    return `MissingPrivileges: the user lacks a privilege (${errorText(cause)}). Grant it and run clean again`
  if (error instanceof RefusedError) return `${error.refusal}: ${error.message}`
  if (isTransient(error)) return `${unreachableText(error)}; check that cluster and the network, and run clean again`
  const { error: name, errorDescription } = toFailure(toFatal('clean', error))
  return `${name}: ${errorDescription}`
}

class Cleaning {
  readonly #clusters: Record<ClusterName, Cluster>
  readonly #options: CleanOptions
  readonly #output: CleanOutput
  hasBegun = false

  constructor(options: CleanOptions, output: CleanOutput) {
    const appName = `tandem clean:${randomBytes(8).toString('hex')}`
    this.#clusters = {
      cluster0: new Cluster('cluster0', options.cluster0, appName),
      cluster1: new Cluster('cluster1', options.cluster1, appName),
    }
    this.#options = options
    this.#output = output
  }

  async close(): Promise<void> {
    await Promise.all(clusterNames.map((name) => this.#clusters[name].close().catch(() => {})))
  }

  async run(): Promise<ExitCode> {
    const { yes, dryRun, json } = this.#options
    const facts = { cluster0: await this.#connect('cluster0'), cluster1: await this.#connect('cluster1') }
    if (facts.cluster0.identity !== '' && facts.cluster0.identity === facts.cluster1.identity)
      throw new RefusedError('UnsupportedTopology', 'both connection strings lead to the same cluster; check them')
    await this.#refuseLiving(await this.#readRecord(facts), facts)
    const shown = await this.#read(facts)
    const { record, plan } = shown
    if (isClean(plan)) return this.#report(plan, 'nothing to clean up', true)
    if (!yes) {
      const confirm = dryRun || json ? undefined : this.#output.confirm
      if (!confirm) return this.#report(plan, 'dry run: nothing was changed; --yes carries the plan out', false)
      if (!(await confirm([...planLines(plan), ...warningsOf(plan)].map(printable)))) {
        this.#output.err('not confirmed; nothing was changed\n')
        return exitCodes.notCleaned
      }
    }
    // The operator may have answered much later, and an instance may have run and stopped in the meantime.
    await this.#refuseLiving(record, facts)
    if (!isDeepStrictEqual(await this.#read(facts), shown))
      throw new CleanRefusal(
        'the stored sync or the clusters have changed since they were read, so the plan no longer fits. Nothing was changed. Run clean again.',
      )
    await this.#carryOut(plan)
    return this.#report(plan, 'done: the clusters are cleaned up', true)
  }

  async #connect(name: ClusterName): Promise<ClusterFacts> {
    const facts = await readFacts(this.#clusters[name])
    this.#clusters[name].writesCarryBypass = !facts.authenticated
    return facts
  }

  /** The databases that may contain the metadata of the sync. */
  get #databases(): readonly string[] {
    return databasesOfSync(this.#options.syncName)
  }

  #eachDatabase(): DatabaseOf[] {
    const clusters = Object.values(this.#clusters)
    return clusters.flatMap((cluster) => this.#databases.map((database) => ({ cluster, database })))
  }

  async #readRecord(facts: Record<ClusterName, ClusterFacts>): Promise<SyncRecord | null> {
    return await findStoredSync(this.#clusters, facts, contextOfPhase(), this.#options.syncName)
  }

  async #read(facts: Record<ClusterName, ClusterFacts>): Promise<{ record: SyncRecord | null; plan: CleanPlan }> {
    const context = contextOfPhase()
    const clusters = this.#clusters
    await refuseOtherMoves(clusters, facts, this.#databases, context)
    const record = await this.#readRecord(facts)
    const { unblock } = this.#options
    return { record, plan: await planClean({ clusters, record, databases: this.#databases, unblock, context }) }
  }

  /** Throws CleanRefusal if an instance of this sync is alive. */
  async #refuseLiving(record: SyncRecord | null, facts: Record<ClusterName, ClusterFacts>): Promise<void> {
    const usesRedis = record?.redis === true
    const heartbeats = await this.#heartbeats(usesRedis, facts)
    const alive = await liveInstances({
      databases: this.#eachDatabase(),
      heartbeats,
      mayLoseHeartbeats: usesRedis,
      onWait: (ids) =>
        this.#output.err(
          `waiting up to ${leaseMS / 1_000} seconds for a lease renewal or heartbeat of ${printable(named(ids))}\n`,
        ),
    }).finally(() => Promise.all(heartbeats.map((store) => store.close())))
    if (alive.length === 0) return
    throw new CleanRefusal(`${aliveText(alive)} Nothing was changed.`)
  }

  async #heartbeats(usesRedis: boolean, facts: Record<ClusterName, ClusterFacts>): Promise<Liveness[]> {
    if (!usesRedis)
      return this.#eachDatabase().map(
        ({ cluster, database }) => new MongoLiveness(cluster, { ttlMS: leaseMS, database }),
      )
    const { redis, redisTls } = this.#options
    if (redis === null)
      throw new CleanRefusal(
        'the instances of this sync send their heartbeats to Redis; give its address with --redis, so that clean can see whether one ' +
          'is alive. If that Redis no longer exists, give the address of an empty one. Nothing was changed.',
      )
    const { RedisLiveness } = await import('../redis/redis-liveness.ts')
    return [new RedisLiveness(redis, redisScope(facts, this.#options.syncName), { ttlMS: leaseMS, tls: redisTls })]
  }

  /**
   * Each step can be repeated. The metadata is dropped after writes are allowed and the balancer is started, because
   * the plan is made from it.
   */
  async #carryOut({ unblock, startBalancer, drop, reservations }: CleanPlan): Promise<void> {
    this.hasBegun = true
    await this.#endWrites()
    const context = this.#beginPhase()
    for (const { cluster } of unblock)
      await retry(`allowing writes on ${cluster}`, context, () => setWriteBlocking(this.#clusters[cluster], false))
    if (startBalancer) {
      const destination = this.#clusters[startBalancer]
      const metadata = new Metadata(destination, context)
      await retry('starting the balancer', context, () => restoreBalancer(destination, metadata))
    }
    for (const { cluster, database } of drop)
      await retry(`dropping ${database} on ${cluster}`, context, () =>
        this.#clusters[cluster].write(database, { dropDatabase: 1 }),
      )
    for (const cluster of reservations)
      await retry(`removing the reservation on ${cluster}`, context, () =>
        new LeftReservation(this.#clusters[cluster], context, this.#databases).remove(),
      )
  }

  /** Waits for the writes of ended instances, which must not reach a cluster on which users may write again. */
  async #endWrites(): Promise<void> {
    const context = this.#beginPhase()
    const alive = await retry('ending the writes of the instances', context, () => endWrites(this.#eachDatabase()))
    if (alive.length === 0) return
    // All instances are evicted at the same time, so others may have been evicted already.
    throw new CleanRefusal(
      `${aliveText(alive)} Other instances may have been evicted already. Nothing else was changed.`,
    )
  }

  /** Begins a phase. When its time limit has passed, operations that still wait for the clusters are stopped. */
  #beginPhase(): RetryContext {
    const context = contextOfPhase()
    for (const name of clusterNames) this.#clusters[name].stopped = context.signal
    return context
  }

  #report(plan: CleanPlan, outcome: string, clean: boolean): ExitCode {
    const { json } = this.#options
    const lines = [...planLines(plan), outcome].map((line) => `${printable(line)}\n`)
    this.#output.out(json ? `${JSON.stringify({ ...plan, clean }, null, 2)}\n` : lines.join(''))
    return clean ? exitCodes.clean : exitCodes.notCleaned
  }
}

function contextOfPhase(): RetryContext {
  return { monitor: new RetryMonitor(), signal: AbortSignal.timeout(patienceMS) }
}

function aliveText(ids: readonly string[]): string {
  return `${named(ids)} ${ids.length > 1 ? 'are' : 'is'} alive. Stop all instances of this sync, then run clean again.`
}

function named(ids: readonly string[]): string {
  return `instance${ids.length > 1 ? 's' : ''} ${ids.join(', ')}`
}

/** What the operator should know before confirming the plan. */
function warningsOf({ sync, drop }: CleanPlan): string[] {
  if (!sync || drop.length === 0) return []
  return [
    'The sync can then no longer be continued, committed or reversed. The synced collections stay on the destination.',
  ]
}
