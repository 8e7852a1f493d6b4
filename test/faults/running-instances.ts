import { setTimeout as sleep } from 'node:timers/promises'
import type { Progress } from '../../src/domain/progress.ts'
import { type Instances, startInstances } from '../support/instances.ts'
import type { Random } from '../support/random.ts'
import type { Tandem, TandemOptions } from '../support/tandem-process.ts'
import { startProxy, type TcpProxy } from '../support/tcp-proxy.ts'
import { until } from '../support/until.ts'
import type { Clusters } from './clusters.ts'
import type { Death } from './ownership-history.ts'

/** Default time in ms after which the writer is stopped if no commit is possible yet. */
const writesWhileWaitingMS = 60_000

/** The instances of one migration: which of them run, are stopped or have died, and the output of all their processes. */
export class RunningInstances {
  readonly clusters: Clusters
  readonly random: Random
  readonly deaths: Death[] = []
  /** Instances that are stopped by SIGSTOP or disconnected. They receive no commands, and nothing waits for them. */
  readonly unreachable = new Set<string>()
  /** Instances that a fault has affected since the commit began. */
  readonly disturbed = new Set<string>()
  faults = 0
  /** Set when the commit has begun. From then on partitions need no new owner. */
  committing = false
  readonly #body: Record<string, unknown>
  readonly #ran: { id: string; tandem: Tandem }[] = []
  readonly #kept: { close(): Promise<unknown> }[] = []
  readonly #notes: string[] = []
  /** Options with which each instance was last started. */
  readonly #overrides = new Map<string, Partial<TandemOptions>>()
  #starting: Promise<Instances> | null = null
  #started: Instances | null = null

  readonly #over = new AbortController()

  /** @param body the body of `start` */
  constructor(clusters: Clusters, random: Random, body: Record<string, unknown>) {
    this.clusters = clusters
    this.random = random
    this.#body = body
  }

  /** Aborted when no more faults may be injected. */
  get signal(): AbortSignal {
    return this.#over.signal
  }

  end(): void {
    this.#over.abort()
  }

  get #members(): Map<string, Tandem> {
    return this.#started?.members ?? new Map()
  }

  /** mongosyncIDs of the instances that run and can be reached. */
  get ids(): string[] {
    return [...this.#members.keys()].filter((id) => !this.unreachable.has(id)).sort()
  }

  get(id: string): Tandem {
    const tandem = this.#members.get(id)
    if (!tandem) throw new Error(`${id} does not run`)
    return tandem
  }

  /** Starts a process, which joins the sync or continues the work of its predecessor. */
  async start(id: string, overrides: Partial<TandemOptions> = {}): Promise<void> {
    this.note(`${id} starts`)
    this.#starting ??= startInstances([], {
      cluster0: this.clusters.source.uri,
      cluster1: this.clusters.destination.uri,
    })
    this.#started = await this.#starting
    const tandem = await this.#started.start(id, overrides)
    this.#overrides.set(id, overrides)
    this.#ran.push({ id, tandem })
    await until(`connected: ${id}`, () => tandem.progress())
  }

  /** Registers resources that a fault has opened. They are closed when the instances are stopped. */
  keep(...closable: { close(): Promise<unknown> }[]): void {
    this.#kept.push(...closable)
  }

  /**
   * Starts a second process with that id while the first one keeps running. Returns the first, which is no longer one of the instances. The
   * second counts as an instance once `connected` has resolved.
   */
  async replace(id: string, overrides: Partial<TandemOptions>): Promise<Tandem> {
    this.note(`${id} is replaced`)
    const first = this.get(id)
    this.keep({ close: () => first.stop() })
    this.unreachable.add(id)
    const tandem = await this.#started?.start(id, overrides)
    if (tandem) this.#ran.push({ id, tandem })
    return first
  }

  /** Resolves when the process with that id continues the work of its predecessor. */
  async connected(id: string): Promise<void> {
    await until(`continuing: ${id}`, async () => {
      const { state } = await this.get(id).progress()
      if (state === 'IDLE') throw new Error('IDLE')
    })
    this.unreachable.delete(id)
    this.note(`${id} continues`)
  }

  /** Sends `start` to the given instances. */
  async begin(...ids: string[]): Promise<void> {
    await Promise.all(ids.map((id) => this.command(id, 'start', this.#body)))
  }

  async command(id: string, command: string, body: unknown = {}): Promise<void> {
    this.note(`${id}: ${command}`)
    const answer = await this.get(id).post(command, body)
    if (answer.status === 200) return
    throw new Error(`${id} answered ${command} with ${answer.status} ${JSON.stringify(answer.body)}`)
  }

  async kill(id: string): Promise<void> {
    this.died(id, 'kill -9')
    await this.#started?.kill9(id)
  }

  /** Waits until the instance has died at the step that its fault names. Returns false if it has not died within the timeout. */
  async awaitEnd(id: string, timeoutSeconds: number): Promise<boolean> {
    const tandem = this.get(id)
    const deadline = Date.now() + timeoutSeconds * 1_000
    while (tandem.isRunning() && Date.now() < deadline && !this.signal.aborted) await sleep(5)
    if (tandem.isRunning()) return false
    this.died(id, 'SIGKILL at a step')
    this.#members.delete(id)
    return true
  }

  /** Restarts an instance that died or left, with the same id, connection strings and arguments, but without a fault. */
  async startAgain(id: string): Promise<void> {
    const { cluster0, cluster1, extraArgs } = this.#overrides.get(id) ?? {}
    await this.start(id, {
      ...(cluster0 && cluster1 ? { cluster0, cluster1 } : {}),
      ...(extraArgs ? { extraArgs } : {}),
    })
    await this.connected(id)
  }

  /** Ends the instance by SIGTERM. It then releases what it owns. */
  async leave(id: string): Promise<void> {
    this.died(id, 'SIGTERM')
    const tandem = this.get(id)
    this.#members.delete(id)
    await tandem.stop()
  }

  signalProcess(id: string, signal: 'SIGSTOP' | 'SIGCONT'): void {
    if (signal === 'SIGSTOP') this.died(id, signal)
    process.kill(this.get(id).pid, signal)
    if (signal === 'SIGSTOP') this.unreachable.add(id)
    else {
      this.unreachable.delete(id)
      const death = this.deaths.findLast((one) => one.id === id)
      if (death) death.backAt = Date.now()
    }
    this.note(`${id}: ${signal}`)
  }

  /** Starts proxies for one instance. Their connection strings use `directConnection`, because discovery would bypass the proxies. */
  async ownProxies(): Promise<{ proxies: TcpProxy[]; uris: { cluster0: string; cluster1: string } }> {
    const { source, destination } = this.clusters
    const ports = [source, destination].map(({ hosts = [] }) => Number(hosts[0]?.split(':')[1]))
    const proxies = await Promise.all(ports.map((port) => startProxy('127.0.0.1', port)))
    this.keep(...proxies)
    const [cluster0 = '', cluster1 = ''] = proxies.map(
      ({ port }) => `mongodb://127.0.0.1:${port}/?directConnection=true`,
    )
    return { proxies, uris: { cluster0, cluster1 } }
  }

  died(id: string, how: string): void {
    this.note(`${id} dies: ${how}`)
    this.faults += 1
    this.disturbed.add(id)
    const others = this.ids.some((one) => one !== id)
    this.deaths.push({ id, at: Date.now(), how, only: this.committing ? 'coordinator' : 'all', others, backAt: null })
  }

  async coordinator(): Promise<string> {
    return await until('a coordinator that runs', async () => {
      const [first] = this.ids
      const { coordinatorID } = await this.get(first ?? '').progress()
      if (!coordinatorID || !this.ids.includes(coordinatorID)) throw new Error(`${coordinatorID} coordinates`)
      return coordinatorID
    })
  }

  /**
   * Waits until all instances that can be reached fulfil the predicate. Rejects when one is FAILED without fulfilling it, and
   * when the time is over. With `extends`, the time begins again whenever an event is applied. Returns the time at which each
   * instance was first observed to fulfil it.
   */
  async allReach(
    what: string,
    predicate: (progress: Progress) => boolean,
    timeoutSeconds: number,
    { extends: isExtended = false }: { extends?: boolean } = {},
  ): Promise<Map<string, number>> {
    let deadline = Date.now() + timeoutSeconds * 1_000
    let applied = 0
    const reached = new Map<string, number>()
    for (;;) {
      const all = await Promise.all(this.ids.map((id) => this.#ask(id)))
      const now = all.reduce((sum, { progress }) => sum + (progress?.totalEventsApplied ?? 0), 0)
      if (isExtended && now > applied) deadline = Date.now() + timeoutSeconds * 1_000
      applied = Math.max(applied, now)
      for (const { id, progress } of all) {
        if (progress && predicate(progress)) reached.set(id, reached.get(id) ?? Date.now())
        else reached.delete(id)
        if (progress?.state === 'FAILED' && !reached.has(id)) {
          throw new Error(`${id} FAILED: ${JSON.stringify(progress.failure)}`)
        }
      }
      if (all.length > 0 && all.length === this.ids.length && all.every(({ id }) => reached.has(id))) {
        this.note(`all: ${what}`)
        return reached
      }
      if (Date.now() > deadline) throw new Error(`not ${what} after ${timeoutSeconds} s: ${JSON.stringify(all)}`)
      await sleep(50)
    }
  }

  /**
   * Waits until all instances can commit, for the given time after the last applied event. On a busy machine the writer may be faster than
   * the sync, which then never catches up, so `stopWriting` is called after `writesMS`.
   */
  async allCanCommit(
    timeoutSeconds: number,
    stopWriting: () => void,
    writesMS: number = writesWhileWaitingMS,
  ): Promise<void> {
    const timer = setTimeout(stopWriting, writesMS)
    try {
      await this.allReach('canCommit', (progress) => progress.canCommit, timeoutSeconds, { extends: true })
    } finally {
      clearTimeout(timer)
    }
  }

  async #ask(id: string): Promise<{ id: string; progress: Progress | null }> {
    const tandem = this.#members.get(id)
    return { id, progress: (await tandem?.progress().catch(() => null)) ?? null }
  }

  /** Adds a line to the output, which helps to find the cause of a failure. */
  note(what: string): void {
    this.#notes.push(`${new Date().toISOString()} ${what}`)
  }

  /** Returns the notes and the output of all processes. */
  output(): string {
    return `${this.#notes.join('\n')}\n`.concat(this.#outputs())
  }

  #outputs(): string {
    return this.#ran.map(({ id, tandem }) => `=== ${id} (${tandem.pid})\n${tandem.output()}`).join('\n')
  }

  async stop(): Promise<void> {
    for (const id of this.unreachable) if (this.#members.has(id)) process.kill(this.get(id).pid, 'SIGCONT')
    await this.#started?.stop()
    await Promise.all(this.#kept.map((one) => one.close()))
  }
}
