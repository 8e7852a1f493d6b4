import { setTimeout as sleep } from 'node:timers/promises'
import type { Progress } from '../../src/domain/progress.ts'
import type { Random } from './random.ts'
import type { Pair } from './scenario.ts'
import type { Tandem, TandemOptions } from './tandem-process.ts'
import { startProxy, type TcpProxy } from './tcp-proxy.ts'
import { startTeam, type Team } from './team.ts'
import type { Death } from './team-history.ts'
import { until } from './until.ts'

/** The team of a scenario: who runs, who is stopped, who has died, and the output of all that ever ran. */
export class RunningTeam {
  readonly pair: Pair
  readonly random: Random
  /** Aborted when the workload has ended, before the commit. */
  readonly signal: AbortSignal
  readonly deaths: Death[] = []
  /** Stopped by SIGSTOP or cut off: asked nothing, not waited for. */
  readonly unreachable = new Set<string>()
  /** Those that run since the beginning of the commit, or the last fault of it. */
  readonly disturbed = new Set<string>()
  faults = 0
  /** Set when the commit has begun: from then on partitions need no new owner. */
  committing = false
  readonly #body: Record<string, unknown>
  readonly #ran: { id: string; tandem: Tandem }[] = []
  readonly #kept: { close(): Promise<unknown> }[] = []
  readonly #notes: string[] = []
  /** What each was started with last. */
  readonly #overrides = new Map<string, Partial<TandemOptions>>()
  #starting: Promise<Team> | null = null
  #team: Team | null = null

  constructor(pair: Pair, random: Random, signal: AbortSignal, body: Record<string, unknown>) {
    this.pair = pair
    this.random = random
    this.signal = signal
    this.#body = body
  }

  get #members(): Map<string, Tandem> {
    return this.#team?.members ?? new Map()
  }

  /** mongosyncIDs of those that run and can be asked. */
  get ids(): string[] {
    return [...this.#members.keys()].filter((id) => !this.unreachable.has(id)).sort()
  }

  get(id: string): Tandem {
    const tandem = this.#members.get(id)
    if (!tandem) throw new Error(`${id} does not run`)
    return tandem
  }

  /** Starts a process; it joins the sync, or goes on with what its predecessor had. */
  async start(id: string, overrides: Partial<TandemOptions> = {}): Promise<void> {
    this.note(`${id} starts`)
    this.#starting ??= startTeam([], { cluster0: this.pair.source.uri, cluster1: this.pair.destination.uri })
    this.#team = await this.#starting
    const tandem = await this.#team.start(id, overrides)
    this.#overrides.set(id, overrides)
    this.#ran.push({ id, tandem })
    await until(`connected: ${id}`, () => tandem.progress())
  }

  /** What a fault has opened, to be closed when the team is stopped. */
  keep(...closable: { close(): Promise<unknown> }[]): void {
    this.#kept.push(...closable)
  }

  /**
   * Starts a second process of that id while the first is alive and goes on. Returns the first, which the team does not ask any more; the
   * second is asked from `connected` on.
   */
  async replace(id: string, overrides: Partial<TandemOptions>): Promise<Tandem> {
    this.note(`${id} is replaced`)
    const first = this.get(id)
    this.keep({ close: () => first.stop() })
    this.unreachable.add(id)
    const tandem = await this.#team?.start(id, overrides)
    if (tandem) this.#ran.push({ id, tandem })
    return first
  }

  /** The process of that id goes on with what its predecessor had. */
  async connected(id: string): Promise<void> {
    await until(`going on: ${id}`, async () => {
      const { state } = await this.get(id).progress()
      if (state === 'IDLE') throw new Error('IDLE')
    })
    this.unreachable.delete(id)
    this.note(`${id} goes on`)
  }

  /** `start` to those given. */
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
    await this.#team?.kill9(id)
  }

  /** Ended by itself, at a step it was to die at. */
  async awaitEnd(id: string, timeoutSeconds: number): Promise<boolean> {
    const tandem = this.get(id)
    const deadline = Date.now() + timeoutSeconds * 1_000
    while (tandem.isRunning() && Date.now() < deadline && !this.signal.aborted) await sleep(5)
    if (tandem.isRunning()) return false
    this.died(id, 'SIGKILL at a step')
    this.#members.delete(id)
    return true
  }

  /** Starts one again that died or left, with the same id, connection strings and arguments, but no step to die at. */
  async startAgain(id: string): Promise<void> {
    const { cluster0, cluster1, extraArgs } = this.#overrides.get(id) ?? {}
    await this.start(id, {
      ...(cluster0 && cluster1 ? { cluster0, cluster1 } : {}),
      ...(extraArgs ? { extraArgs } : {}),
    })
    await this.connected(id)
  }

  /** As on SIGTERM: what it has is given back. */
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
    else this.unreachable.delete(id)
    this.note(`${id}: ${signal}`)
  }

  /** Connection strings through proxies of this instance's own. Discovery would go round them, so: of one member, directly. */
  async ownProxies(): Promise<{ proxies: TcpProxy[]; uris: { cluster0: string; cluster1: string } }> {
    const ports = [this.pair.source, this.pair.destination].map((set) => Number(set.hosts[0]?.split(':')[1]))
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
    this.deaths.push({ id, at: Date.now(), how, only: this.committing ? 'coordinator' : 'all' })
  }

  async coordinator(): Promise<string> {
    return await until('a coordinator that runs', async () => {
      const [first] = this.ids
      const { coordinatorID } = await this.get(first ?? '').progress()
      if (!coordinatorID || !this.ids.includes(coordinatorID)) throw new Error(`${coordinatorID} coordinates`)
      return coordinatorID
    })
  }

  /** Of everybody that can be asked; a member that has FAILED ends the wait. Returns when each was seen there first. */
  async allReach(
    what: string,
    predicate: (progress: Progress) => boolean,
    timeoutSeconds: number,
  ): Promise<Map<string, number>> {
    const deadline = Date.now() + timeoutSeconds * 1_000
    const reached = new Map<string, number>()
    for (;;) {
      const all = await Promise.all(this.ids.map((id) => this.#ask(id)))
      for (const { id, progress } of all) {
        if (progress?.state === 'FAILED') throw new Error(`${id} FAILED: ${JSON.stringify(progress.failure)}`)
        if (progress && predicate(progress)) reached.set(id, reached.get(id) ?? Date.now())
        else reached.delete(id)
      }
      if (all.length > 0 && all.length === this.ids.length && all.every(({ id }) => reached.has(id))) {
        this.note(`all: ${what}`)
        return reached
      }
      if (Date.now() > deadline) throw new Error(`not ${what} after ${timeoutSeconds} s: ${JSON.stringify(all)}`)
      await sleep(50)
    }
  }

  async #ask(id: string): Promise<{ id: string; progress: Progress | null }> {
    const tandem = this.#members.get(id)
    return { id, progress: (await tandem?.progress().catch(() => null)) ?? null }
  }

  /** For whoever looks for the cause of a failure. */
  note(what: string): void {
    this.#notes.push(`${new Date().toISOString()} ${what}`)
  }

  /** What was done, and what everybody said that ever ran. */
  output(): string {
    return `${this.#notes.join('\n')}\n`.concat(this.#said())
  }

  #said(): string {
    return this.#ran.map(({ id, tandem }) => `=== ${id} (${tandem.pid})\n${tandem.output()}`).join('\n')
  }

  async stop(): Promise<void> {
    for (const id of this.unreachable) if (this.#members.has(id)) process.kill(this.get(id).pid, 'SIGCONT')
    await this.#team?.stop()
    await Promise.all(this.#kept.map((one) => one.close()))
  }
}
