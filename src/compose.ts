import { randomBytes } from 'node:crypto'
import { setTimeout as sleep } from 'node:timers/promises'
import { clusterRisks, redisRisks } from './checks/transport.ts'
import { MongoLiveness } from './coordination/mongo-liveness.ts'
import type { AuditEntry, CommandCall, ReceivedCommand } from './domain/audit-entry.ts'
import { addCircumstances } from './domain/circumstances.ts'
import type { CollectionsPage, CollectionsReport } from './domain/collection-figures.ts'
import type { CommitRequest } from './domain/commit-request.ts'
import { errorStack, errorText, unreachableText } from './domain/error-text.ts'
import { isRefusalName, RefusedError, StoppedError, toFailure } from './domain/errors.ts'
import type { Finding } from './domain/finding.ts'
import type { Instance } from './domain/instance.ts'
import type { InstancesReport } from './domain/instances.ts'
import type { Journal } from './domain/journal.ts'
import type { Limits, LimitsReport, LoadLevel } from './domain/limits.ts'
import type { Mismatch } from './domain/mismatch.ts'
import type { PeerAnswers, PeerCommand } from './domain/peer-command.ts'
import type { Progress } from './domain/progress.ts'
import type { RedisTls } from './domain/redis-url.ts'
import type { StartConfiguration } from './domain/start-request.ts'
import { Cluster, type ClusterName } from './mongo/cluster.ts'
import { isTransient, toFatal } from './mongo/errors.ts'
import { type ClusterFacts, readFacts } from './mongo/identity.ts'
import type { SyncRecord } from './mongo/metadata.ts'
import { type RetryContext, RetryMonitor } from './mongo/retry.ts'
import type { RedisLiveness } from './redis/redis-liveness.ts'
import { CommandTrail } from './session/command-trail.ts'
import { clusterNames, findStoredSync } from './session/find-stored.ts'
import { idleProgress } from './session/report-progress.ts'
import { StateLog } from './session/state-log.ts'
import { SyncInstance } from './session/sync-instance.ts'

export interface ComposeOptions {
  cluster0: string
  cluster1: string
  id: string
  journal: Journal
  loadLevel: LoadLevel
  /** The Redis for heartbeats; null: heartbeats go through the metadata database. */
  redis: string | null
  redisTls: RedisTls
  /** Called when a named step of a commit or a reversal begins. */
  atStep: (step: string) => void
  /** Called when the instance has reached FAILED. */
  onFailure: () => void
}

const connectPatienceMS = 8_000
const closePatienceMS = 5_000

/**
 * The composition root of one instance. It connects to both clusters, finds the state that a predecessor stored, and
 * then delegates to the SyncInstance. Until the clusters answer, every request is refused with the reason.
 */
export class ComposedInstance implements Instance {
  readonly #options: ComposeOptions
  readonly #stop = new AbortController()
  readonly #clusters: Record<ClusterName, Cluster>
  readonly #booted: Promise<void>
  #instance: SyncInstance | null = null
  #bootFailure: unknown = null
  /** What the instance is waiting for before it accepts commands. */
  #waitingFor = ''
  #reporting: Disposable | null = null
  #redis: RedisLiveness | null = null
  readonly #trail: CommandTrail

  constructor(options: ComposeOptions) {
    this.#options = options
    const incarnation = randomBytes(8).toString('hex')
    const appName = `tandem:${options.id}:${incarnation}`
    this.#clusters = {
      cluster0: new Cluster('cluster0', options.cluster0, appName),
      cluster1: new Cluster('cluster1', options.cluster1, appName),
    }
    this.#trail = new CommandTrail(
      () => this.#instance?.audit ?? null,
      (error) => options.journal('audit not stored', { error: errorText(error) }),
    )
    this.#booted = this.#boot(incarnation).catch((error) => {
      if (error instanceof StoppedError) return
      this.#bootFailure = error
      const stack = errorStack(error)
      options.journal('the instance cannot start', { ...toFailure(error), ...(stack && { stack }) })
      options.onFailure()
    })
  }

  progress(): Progress {
    if (this.#bootFailure) return { ...idleProgress, state: 'FAILED', failure: toFailure(this.#bootFailure) }
    return this.#ready().progress()
  }

  async instances(): Promise<InstancesReport> {
    return await (await this.#whenReady()).instances()
  }

  async collections(page: CollectionsPage): Promise<CollectionsReport> {
    return await (await this.#whenReady()).collections(page)
  }

  limits(): LimitsReport {
    return this.#ready().limits()
  }

  async limit(limits: Partial<Limits>): Promise<LimitsReport> {
    return await (await this.#whenReady()).limit(limits)
  }

  async start(configuration: StartConfiguration): Promise<void> {
    await (await this.#whenReady()).start(configuration)
  }

  async check(configuration: StartConfiguration): Promise<Finding[]> {
    return await (await this.#whenReady()).check(configuration)
  }

  async pause(): Promise<void> {
    await (await this.#whenReady()).pause()
  }

  async resume(): Promise<void> {
    await (await this.#whenReady()).resume()
  }

  async commit(request: CommitRequest): Promise<void> {
    await (await this.#whenReady()).commit(request)
  }

  async abort(): Promise<void> {
    await (await this.#whenReady()).abort()
  }

  async reverse(): Promise<void> {
    await (await this.#whenReady()).reverse()
  }

  async sendToAll(command: PeerCommand, request?: CommitRequest): Promise<PeerAnswers> {
    return await (await this.#whenReady()).sendToAll(command, request)
  }

  async audit(): Promise<AuditEntry[]> {
    try {
      return await this.#trail.read()
    } catch (error) {
      if (!isTransient(error)) throw error
      throw new RefusedError(
        'ClusterUnreachable',
        'the destination, which stores the audit trail, does not answer; try again',
      )
    }
  }

  async commandReceived(call: ReceivedCommand): Promise<void> {
    await this.#record({ ...call, outcome: 'received', error: null, mongosyncID: this.#options.id }, true)
  }

  commandAnswered(call: CommandCall, admitted: boolean): void {
    void this.#record({ ...call, mongosyncID: this.#options.id }, admitted)
  }

  async #record(entry: AuditEntry, admitted: boolean): Promise<void> {
    const { time, mongosyncID: _id, ...rest } = entry
    // A log line has its own time.
    this.#options.journal('audit', { received: time, ...rest })
    if (admitted) await this.#trail.add(entry)
  }

  async mismatches(): Promise<{ mismatches: Mismatch[]; total: number }> {
    return await (await this.#whenReady()).mismatches()
  }

  async repair(): Promise<number> {
    return await (await this.#whenReady()).repair()
  }

  /** Drains for a limited time, then aborts what has not ended (a cluster may not answer). */
  async close(): Promise<void> {
    this.#trail.close()
    this.#reporting?.[Symbol.dispose]()
    const abortTimer = setTimeout(() => this.#stop.abort(), closePatienceMS)
    if (!this.#instance) this.#stop.abort()
    await this.#instance?.close()
    clearTimeout(abortTimer)
    this.#stop.abort()
    await this.#booted
    await this.#redis?.close().catch(() => {})
    for (const name of clusterNames) await this.#clusters[name].close().catch(() => {})
  }

  /** Commands wait for a limited time for an instance that is connecting. */
  async #whenReady(): Promise<SyncInstance> {
    await Promise.race([this.#booted, sleep(connectPatienceMS, undefined, { ref: false })])
    return this.#ready()
  }

  #ready(): SyncInstance {
    if (this.#instance) return this.#instance
    if (this.#bootFailure) {
      const { error, errorDescription } = toFailure(this.#bootFailure)
      const known = isRefusalName(error) && error !== 'InternalError'
      throw new RefusedError(known ? error : 'WrongState', errorDescription)
    }
    throw new RefusedError('ClusterUnreachable', `connecting: ${this.#waitingFor}`)
  }

  async #boot(incarnation: string): Promise<void> {
    const { journal, id, atStep, onFailure } = this.#options
    const context: RetryContext = {
      monitor: new RetryMonitor(),
      signal: this.#stop.signal,
      onRetry: (what, error) => journal('retrying', { what, error: errorText(error) }),
      journal,
    }
    for (const name of clusterNames) {
      this.#clusters[name].monitor = context.monitor
      this.#clusters[name].stopped = context.signal
    }
    const facts = {
      cluster0: await this.#connect('cluster0'),
      cluster1: await this.#connect('cluster1'),
    }
    const { redis, redisTls } = this.#options
    const transportRisks = (): Finding[] => [
      ...clusterNames.flatMap((name) => clusterRisks(this.#clusters[name])),
      ...redisRisks(redis),
    ]
    for (const { message, remedy } of transportRisks()) journal('insecure connection', { problem: message, remedy })
    // Loaded on demand: most installations do not use Redis, and its client takes a sixth of the total load time.
    if (redis !== null) this.#redis = await openRedis(redis, redisTls, facts)
    const findStored = (): Promise<SyncRecord | null> => findStoredSync(this.#clusters, facts, context)
    const stored = await findStored()
    const stateLog = new StateLog(journal, () => context.monitor.current?.what)
    const instance = new SyncInstance({
      clusters: this.#clusters,
      addresses: { cluster0: facts.cluster0.address, cluster1: facts.cluster1.address },
      mongosyncID: id,
      incarnation,
      context,
      loadLevel: this.#options.loadLevel,
      atStep,
      // One Redis serves both directions. The metadata database is on the present destination.
      liveness: (destination) => this.#redis ?? new MongoLiveness(destination),
      redis: redis !== null,
      transportRisks,
      findStored,
      onTransition: (snapshot) => {
        if (stateLog.told(snapshot) === 'FAILED') onFailure()
      },
    })
    if (stored) await instance.restore(stored)
    this.#instance = instance
    this.#reporting = stateLog.reporting(() => instance.progress())
    journal('connected', { versions: [facts.cluster0.version, facts.cluster1.version], resumed: stored !== null })
  }

  /** Waits for the cluster without a limit, because an instance may start before its clusters. */
  async #connect(name: ClusterName): Promise<ClusterFacts> {
    this.#waitingFor = `${name} does not answer yet`
    for (;;) {
      if (this.#stop.signal.aborted) throw new StoppedError()
      try {
        // A topology whose first connection failed stays closed; connect() opens a new one.
        await this.#clusters[name].client.connect()
        const facts = await readFacts(this.#clusters[name])
        this.#clusters[name].writesCarryBypass = !facts.authenticated
        this.#waitingFor =
          'the stored state is read, or another process with the same --id still holds the lease; try again'
        return facts
      } catch (error) {
        addCircumstances(error, { cluster: name })
        if (!isTransient(error)) throw toFatal(`connecting to ${name}`, error)
        this.#waitingFor = `${unreachableText(error)}; check that cluster and the network`
        this.#options.journal('waiting for cluster', { cluster: name, error: errorText(error) })
        await sleep(250)
      }
    }
  }
}

async function openRedis(url: string, tls: RedisTls, facts: Record<ClusterName, ClusterFacts>): Promise<RedisLiveness> {
  const { RedisLiveness } = await import('./redis/redis-liveness.ts')
  return new RedisLiveness(url, [facts.cluster0.identity, facts.cluster1.identity].sort().join(':'), { tls })
}
