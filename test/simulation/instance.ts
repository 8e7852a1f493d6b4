import type { Random } from '../support/random.ts'
import type { Host } from './clock.ts'
import type { Process } from './process.ts'
import type { World } from './world.ts'

let lastPid = 0

/** One mongosyncID and the processes that have it, one after the other; two at a time only when somebody starts a second by mistake. */
export class Instance {
  readonly id: string
  process: Process | null = null
  readonly #world: World
  readonly #random: Random
  #home: string
  #starts = 0

  constructor(world: World, id: string, random: Random) {
    this.#world = world
    this.id = id
    this.#random = random
    this.#home = `host-of-${id}`
  }

  get host(): Host {
    return (this.process as Process).host
  }

  start(delayMS: number): void {
    const { clock, options } = this.#world
    const host: Host = {
      name: this.#home,
      pid: 1_000 + ++lastPid,
      skewMS: (this.#random.fraction() * 2 - 1) * options.skewMaxMS,
      drift: (this.#random.fraction() * 2 - 1) * options.driftMax,
      state: 'running',
      deferred: [],
      stoppedAt: 0,
    }
    const incarnation = `${this.id}x${this.#starts++}`
    clock.after(delayMS, host, () => {
      // A second one, started by mistake, would wait for the first one's lease for ever.
      if (this.#world.calm && this.#world.processesOf(this.id).length > 0) return
      const process = this.#world.process(this.id, host, incarnation)
      this.process = process
      process.begin()
    })
  }

  /** kill -9, and somebody starts it again: on this host, where its end can be proven, or on another one. */
  crash(downMS: number, elsewhere: boolean): void {
    if (!this.process || this.host.state === 'gone') return
    this.#world.end(this.process)
    if (elsewhere) this.#home = `host-of-${this.id}-${this.#starts}`
    this.start(downMS)
  }

  /** SIGSTOP, and on it goes later, as if nothing had happened. */
  pause(milliseconds: number): void {
    const { process } = this
    if (process?.host.state !== 'running') return
    const { host } = process
    host.state = 'stopped'
    this.#world.clock.after(milliseconds, null, () => this.#resume(host))
  }

  /** Somebody starts the same instance on another host while this process still runs, or is stopped. */
  duplicate(): void {
    if (!this.process || this.host.state === 'gone') return
    if (this.#random.chance(0.5)) this.pause(this.#random.int(5_000, 30_000))
    this.#home = `host-of-${this.id}-${this.#starts}`
    this.start(300)
  }

  setClock(skewMS: number): void {
    if (this.process) this.host.skewMS = skewMS
  }

  /** What was stopped goes on, and of several processes the one that has the lease stays. */
  recover(): void {
    const all = this.#world.processesOf(this.id)
    const [keeper = all[0]] = all.filter(({ token, host }) => token !== null && host.state === 'running')
    for (const process of all) {
      if (process === keeper) this.#resume(process.host)
      else this.#world.end(process)
    }
    this.process = keeper ?? this.process
  }

  #resume(host: Host): void {
    if (host.state !== 'stopped') return
    host.state = 'running'
    this.#world.clock.wake(host)
  }
}
