import { type AnyStateMachine, createActor, createMachine } from 'xstate'
import type { InstanceContext } from '../../machines/instance-context.ts'
import type { WorkerReport } from '../../machines/protocol.ts'
import type { Liveness } from '../../src/coordination/liveness.ts'
import { MongoLiveness } from '../../src/coordination/mongo-liveness.ts'
import { noLimits } from '../../src/domain/limits.ts'
import type { Progress } from '../../src/domain/progress.ts'
import { Cluster } from '../../src/mongo/cluster.ts'
import type { SyncRecord } from '../../src/mongo/metadata.ts'
import { RetryMonitor } from '../../src/mongo/retry.ts'
import { withCopyActors } from '../../src/session/copy-actors.ts'
import { CurrentSession } from '../../src/session/current-session.ts'
import { withEventActors } from '../../src/session/event-actors.ts'
import { HeartbeatPublisher } from '../../src/session/heartbeat-publisher.ts'
import { SyncSession } from '../../src/session/sync-session.ts'
import { withVerificationActors } from '../../src/session/verification-actors.ts'
import { Throttle } from '../../src/throttle/throttle.ts'
import type { Host } from './clock.ts'
import type { Network } from './network.ts'

export interface ProcessParts {
  id: string
  host: Host
  incarnation: string
  source: Network
  destination: Network
  record: SyncRecord
  /** Limit of the copy rate; null for no limit. */
  bytesPerSecond: number | null
  /** False if everything is already copied when the world begins. */
  copies: boolean
  /** Creates the liveness store. Null: liveness is stored in the metadata database. */
  liveness: (() => Liveness) | null
  /** Called when another process has the lease, or when the work has failed. An operator must restart it. */
  onFailed: (process: Process, what: string) => void
  /** For mutations: changes this process before it begins. */
  alter: (process: Process) => void
}

const operatorMS = 2_000

/** One tandem process: the product's own code, from the lease to the verifier, on simulated clusters. */
export class Process {
  readonly id: string
  readonly host: Host
  readonly session: SyncSession
  readonly destination: Cluster
  readonly throttle = new Throttle(3)
  /** Number of retries by operation. */
  readonly retries = new Map<string, number>()
  readonly #parts: ProcessParts
  readonly #heartbeatPublisher: HeartbeatPublisher
  #leave: (() => void)[] = []

  constructor(parts: ProcessParts) {
    this.#parts = parts
    const { id, host, incarnation, record, bytesPerSecond } = parts
    this.throttle.set({ ...noLimits, bytesPerSecond })
    this.id = id
    this.host = host
    const appName = `tandem:${id}:${incarnation}`
    const context = {
      monitor: new RetryMonitor(),
      signal: new AbortController().signal,
      onRetry: (what: string) => void this.retries.set(what, (this.retries.get(what) ?? 0) + 1),
    }
    const cluster = (name: 'cluster0' | 'cluster1', network: Network): Cluster => {
      const made = new Cluster(name, 'mongodb://simulated', appName)
      Object.assign(made, {
        client: network.client(host, appName, () => this.token),
        monitor: context.monitor,
        stopped: context.signal,
      })
      return made
    }
    const source = cluster('cluster0', parts.source)
    source.sharded = true
    this.destination = cluster('cluster1', parts.destination)
    const liveness = parts.liveness?.() ?? new MongoLiveness(this.destination)
    this.session = new SyncSession({
      source,
      destination: this.destination,
      record,
      owner: { id, incarnation },
      context,
      liveness,
      storeDecides: parts.liveness !== null,
      throttle: this.throttle,
      atStep: () => {},
      onLeaseLost: (reason) => {
        if (reason === 'taken') return parts.onFailed(this, 'another process has its lease')
        this.#leaveWorkers()
        this.#enterWorkers()
      },
    })
    if (liveness.inRounds) this.session.coordination.alsoRead.all = [liveness.inRounds]
    const progress = { ...running, mongosyncID: id }
    const current = new CurrentSession()
    current.session = this.session
    this.#heartbeatPublisher = new HeartbeatPublisher({
      id,
      incarnation,
      current,
      reporter: { progress: () => progress },
      commands: { pollIfDue: () => {} },
      context,
    })
    parts.alter(this)
  }

  /** Owner token of the lease that the process believes to hold; null without a lease. */
  get token(): string | null {
    return this.session?.lease.held ? this.session.lease.token : null
  }

  /** Whether the process's own fence allows writes now. */
  get mayWrite(): boolean {
    if (!this.session.lease.held) return false
    try {
      this.session.lease.fence()
      return true
    } catch {
      return false
    }
  }

  begin(): void {
    void this.#heartbeatPublisher.start()
    this.#heartbeatPublisher.transition('RUNNING', {
      commitRequested: false,
      reversing: null,
      failure: null,
    } as unknown as InstanceContext)
    this.#enterWorkers()
  }

  #enterWorkers(): void {
    const report = (what: WorkerReport): void => {
      if (what.type !== 'worker.failed') return
      this.#leaveWorkers()
      this.#parts.onFailed(this, `${what.failure.error}: ${what.failure.errorDescription}`)
      setTimeout(() => this.#enterWorkers(), operatorMS)
    }
    this.#leave = [
      this.#parts.copies
        ? worker(
            withCopyActors(() => this.session),
            report,
          )
        : this.#copied(),
      worker(
        withEventActors(() => this.session),
        report,
      ),
      worker(
        withVerificationActors(() => this.session),
        report,
        { enabled: true },
      ),
    ]
  }

  #copied(): () => void {
    this.session
      .open('copy')
      .then(() => this.session.verification.copied())
      .catch(() => {})
    return () => {}
  }

  #leaveWorkers(): void {
    for (const leave of this.#leave.splice(0)) leave()
  }
}

/** Runs a worker that reports to a function instead of the instance machine. Returns a function that stops it. */
function worker(machine: AnyStateMachine, report: (what: WorkerReport) => void, input?: object): () => void {
  const parent = createActor(
    createMachine({
      invoke: { src: machine, input },
      on: { '*': { actions: ({ event }) => report(event as WorkerReport) } },
    }),
  )
  parent.start()
  return () => parent.stop()
}

const running: Progress = {
  state: 'RUNNING',
  canCommit: true,
  canWrite: false,
  info: 'change event application',
  lagTimeSeconds: 0,
  totalEventsApplied: 0,
  collectionCopy: null,
  directionMapping: null,
  mongosyncID: null,
  coordinatorID: null,
  verification: null,
}
