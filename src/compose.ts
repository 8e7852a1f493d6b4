import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { renderProgress } from './api/progress-schema.ts'
import { clusterRisks, redisRisks } from './checks/transport.ts'
import { MongoLiveness } from './coordination/mongo-liveness.ts'
import { addCircumstances } from './domain/circumstances.ts'
import { errorDetails } from './domain/error-details.ts'
import { errorStack, errorText, unreachableText } from './domain/error-text.ts'
import { isRefusalName, RefusedError, StoppedError, toFailure } from './domain/errors.ts'
import type { Finding } from './domain/finding.ts'
import type { Instance } from './domain/instance.ts'
import type { Journal } from './domain/journal.ts'
import type { LoadLevel } from './domain/load-level.ts'
import type { Progress } from './domain/progress.ts'
import type { CopyReadPreference } from './domain/read-preference.ts'
import type { RedisTls } from './domain/redis-url.ts'
import { type ShardNamePairs, shardNamesOf } from './domain/shard-names.ts'
import type { WorkMeter } from './domain/work-meter.ts'
import type { AuditStore } from './mongo/audit-store.ts'
import { Cluster, type ClusterName } from './mongo/cluster.ts'
import { isTransient, toFatal } from './mongo/errors.ts'
import { type ClusterFacts, readFacts } from './mongo/identity.ts'
import type { SyncRecord } from './mongo/metadata.ts'
import { applicationName } from './mongo/predecessors.ts'
import { type RetryContext, RetryMonitor } from './mongo/retry.ts'
import { sessionsPerLease } from './mongo/write-sessions.ts'
import type { RedisLiveness } from './redis/redis-liveness.ts'
import { clusterNames, findStoredSync, redisScope } from './session/find-stored.ts'
import { type Connection, InstanceCommands } from './session/instance-commands.ts'
import { MongosyncLog } from './session/mongosync-log.ts'
import { StateLog } from './session/state-log.ts'
import { SyncInstance, type SyncInstanceParts } from './session/sync-instance.ts'

export interface ComposeOptions {
  cluster0: string
  cluster1: string
  id: string
  /** The name of the sync; null: it has none. */
  syncName: string | null
  journal: Journal
  /** Counts and times the work of this process. */
  meter: WorkMeter
  loadLevel: LoadLevel
  copyReadPreference: CopyReadPreference
  /** Shards that have different names on the two clusters, for the zones. */
  shardNames: ShardNamePairs
  /** The Redis for heartbeats; null: heartbeats go through the metadata database. */
  redis: string | null
  redisTls: RedisTls
  /** Called when a named step of a commit or a reversal begins. */
  atStep: (step: string) => void
  /** Called when the instance has reached FAILED. */
  onFailure: () => void
}

/** Refusal of commands before tandem begins to connect. */
const connects = 'tandem has just started and is connecting to both clusters; try again'
/** Refusal of commands after both clusters have answered, until the instance is restored. */
const readsState =
  'tandem is reading the stored state, or another process with the same --id still holds the lease; try again'
const connectPatienceMS = 8_000
/** Connections that are in use while the sessions of a predecessor are closed. */
const connectionsBeside = 4
const closePatienceMS = 5_000

/** An instance that may still be connecting, and the function that ends it. */
export interface Composed {
  instance: Instance
  close(): Promise<void>
}

/** Creates one instance and its dependencies. Until both clusters answer, its commands are refused with the reason. */
export function compose(options: ComposeOptions): Composed {
  const connection = new ClusterConnection(options)
  const instance = new InstanceCommands(connection, options.id, options.journal)
  connection.begin((command, sender) => instance.perform(command, sender))
  const close = async (): Promise<void> => {
    await instance.close()
    await connection.close()
  }
  return { instance, close }
}

/** Connects to both clusters and restores the instance in the state that an earlier process stored. */
class ClusterConnection implements Connection {
  readonly #options: ComposeOptions
  readonly #stop = new AbortController()
  /** Distinguishes this process from earlier and other processes with the same `--id`. */
  readonly #incarnation = randomBytes(8).toString('hex')
  readonly #clusters: Record<ClusterName, Cluster>
  #booted: Promise<void> = Promise.resolve()
  #instance: SyncInstance | null = null
  #failure: unknown = null
  /** Refusal of commands, for each cluster that has not answered yet. The refusal for `cluster0` takes precedence. */
  readonly #waitingFor = new Map<ClusterName, { description: string; error?: unknown }>(
    clusterNames.map((name) => [name, { description: connects }]),
  )
  readonly #reporting: Disposable[] = []
  #redis: RedisLiveness | null = null

  constructor(options: ComposeOptions) {
    this.#options = options
    const appName = applicationName(options.id, this.#incarnation)
    this.#clusters = {
      cluster0: new Cluster('cluster0', options.cluster0, appName),
      cluster1: new Cluster('cluster1', options.cluster1, appName),
    }
    const shardNames = shardNamesOf(options.shardNames)
    for (const name of clusterNames) this.#clusters[name].shardNames = shardNames[name]
  }

  /** @param perform performs a command from another instance as if it had arrived through this instance's own API */
  begin(perform: SyncInstanceParts['perform']): void {
    const { journal, onFailure } = this.#options
    this.#booted = this.#boot(perform).catch((error) => {
      if (error instanceof StoppedError) return
      this.#failure = error
      const [failure, stack] = [toFailure(error), errorStack(error)]
      const details = errorDetails(failure.error, error)
      journal('the instance cannot start', { ...failure, ...details, ...(stack && { stack }) })
      onFailure()
    })
  }

  get failure(): unknown {
    return this.#failure
  }

  /** The store of received commands; null before the sync exists. */
  get audit(): AuditStore | null {
    return this.#instance?.session?.metadata.audit ?? null
  }

  /** Gives work in progress a limited time to end, and then aborts it, because a cluster may not answer. */
  async close(): Promise<void> {
    for (const report of this.#reporting) report[Symbol.dispose]()
    const abortTimer = setTimeout(() => this.#stop.abort(), closePatienceMS)
    if (!this.#instance) this.#stop.abort()
    await this.#instance?.close()
    clearTimeout(abortTimer)
    this.#stop.abort()
    await this.#booted
    await this.#redis?.close().catch(() => {})
    for (const name of clusterNames) await this.#clusters[name].close().catch(() => {})
  }

  async whenConnected(): Promise<SyncInstance> {
    await Promise.race([this.#booted, sleep(connectPatienceMS, undefined, { ref: false })])
    return this.connected()
  }

  connected(): SyncInstance {
    if (this.#instance) return this.#instance
    if (this.#failure) {
      const { error, errorDescription } = toFailure(this.#failure)
      const known = isRefusalName(error) && error !== 'InternalError'
      throw new RefusedError(known ? error : 'WrongState', errorDescription, { cause: this.#failure })
    }
    const [{ description, error } = { description: readsState }] = this.#waitingFor.values()
    throw new RefusedError('ClusterUnreachable', description, { cause: error })
  }

  async #boot(perform: SyncInstanceParts['perform']): Promise<void> {
    const { journal, id, atStep, onFailure } = this.#options
    const context: RetryContext = {
      monitor: new RetryMonitor(),
      signal: this.#stop.signal,
      onRetry: (what, error) => journal('retrying', { what, error: errorText(error) }),
      journal,
      meter: this.#options.meter,
    }
    for (const name of clusterNames) {
      this.#clusters[name].monitor = context.monitor
      this.#clusters[name].stopped = context.signal
    }
    const facts = await this.#connectBoth()
    this.#applyReadPreference()
    const { redis, redisTls, syncName } = this.#options
    const transportRisks = (): Finding[] => [
      ...clusterNames.flatMap((name) => clusterRisks(this.#clusters[name])),
      ...redisRisks(redis),
    ]
    for (const { message, remedy } of transportRisks()) journal('insecure connection', { problem: message, remedy })
    // Loaded on demand: most installations do not use Redis, and its client takes a sixth of the total load time.
    if (redis !== null) this.#redis = await openRedis(redis, redisTls, redisScope(facts, syncName))
    const findStored = (until?: AbortSignal): Promise<SyncRecord | null> => {
      const limited = until ? { ...context, signal: AbortSignal.any([context.signal, until]) } : context
      return findStoredSync(this.#clusters, facts, limited, syncName)
    }
    const stored = await findStored()
    // The sessions of the predecessor are closed at the same time, each over a connection of its own, while others are in
    // use (`Lease`).
    if (stored) this.#clusters[stored.configuration.destination].openConnections(sessionsPerLease + connectionsBeside)
    const stateLog = new StateLog(journal, () => context.monitor.current?.what)
    const instance = new SyncInstance({
      clusters: this.#clusters,
      addresses: { cluster0: facts.cluster0.address, cluster1: facts.cluster1.address },
      mongosyncID: id,
      incarnation: this.#incarnation,
      context,
      loadLevel: this.#options.loadLevel,
      atStep,
      // A Redis serves both directions. Without one, heartbeats go through the metadata on the current destination.
      liveness: (destination) => this.#redis ?? new MongoLiveness(destination),
      redis: redis !== null,
      transportRisks,
      findStored,
      perform,
      onTransition: (snapshot) => {
        // `#instance` is null while a stored sync is restored. If it had failed, the process keeps running, so that
        // `resume` can reach it.
        if (stateLog.logged(snapshot) === 'FAILED' && this.#instance) onFailure()
      },
    })
    if (stored) await instance.restore(stored)
    this.#instance = instance
    const progress = (): Progress => instance.progress()
    this.#reporting.push(stateLog.reporting(progress))
    const answerOf = (now: Progress): string => JSON.stringify({ progress: renderProgress(now), success: true })
    const segments = async () => (await instance.session?.metadata.segments.counts()) ?? null
    const { meter } = this.#options
    this.#reporting.push(new MongosyncLog({ journal, meter, progress, answerOf, segments }).reporting())
    journal('connected', { versions: [facts.cluster0.version, facts.cluster1.version], resumed: stored !== null })
  }

  #applyReadPreference(): void {
    const { copyReadPreference, journal } = this.#options
    for (const name of clusterNames) {
      this.#clusters[name].copyReadPreference = copyReadPreference
      if (copyReadPreference === 'primary' || this.#clusters[name].readsSecondaries) continue
      const reason = 'tandem reads from secondaries only on replica sets of 6.0 or later'
      const notice = `--copyReadPreference has no effect on ${name}: ${reason}`
      journal('notice', { notice })
    }
  }

  /** Rejects when one of the clusters refuses the connection for good. Otherwise waits for both. */
  async #connectBoth(): Promise<Record<ClusterName, ClusterFacts>> {
    const failed = new AbortController()
    const signal = AbortSignal.any([this.#stop.signal, failed.signal])
    for (const name of clusterNames) {
      this.#waitingFor.set(name, { description: `tandem is waiting for the first answer of ${name}; try again` })
    }
    try {
      const [cluster0, cluster1] = await Promise.all(clusterNames.map((name) => this.#connect(name, signal)))
      return { cluster0, cluster1 } as Record<ClusterName, ClusterFacts>
    } finally {
      failed.abort()
    }
  }

  /** Waits for the cluster without a limit, because an instance may start before its clusters. */
  async #connect(name: ClusterName, signal: AbortSignal): Promise<ClusterFacts> {
    for (let isFirst = true; ; isFirst = false) {
      if (signal.aborted) throw new StoppedError()
      try {
        // The first commands connect the client themselves. `connect()` would open one connection before any command
        // is sent, which costs two more round trips. A topology whose first connection failed stays closed; `connect()`
        // opens a new one.
        if (!isFirst) await this.#clusters[name].client.connect()
        const reading = readFacts(this.#clusters[name])
        // After the first commands, which are sent over the first connections.
        this.#clusters[name].openConnections()
        const facts = await reading
        this.#clusters[name].writesCarryBypass = !facts.authenticated
        this.#waitingFor.delete(name)
        return facts
      } catch (error) {
        addCircumstances(error, { cluster: name })
        if (!isTransient(error)) throw toFatal(`connecting to ${name}`, error)
        const description = `${unreachableText(error)}; check that cluster and the network`
        this.#waitingFor.set(name, { description, error })
        this.#options.journal('waiting for cluster', { cluster: name, error: errorText(error) })
        await sleep(250, undefined, { signal }).catch(() => {})
      }
    }
  }
}

async function openRedis(url: string, tls: RedisTls, scope: string): Promise<RedisLiveness> {
  const { RedisLiveness } = await import('./redis/redis-liveness.ts')
  return new RedisLiveness(url, scope, { tls })
}
