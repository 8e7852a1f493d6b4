import type { Random } from '../support/random.ts'
import { type Host, hostOf } from './clock.ts'
import type { Process } from './process.ts'
import type { World } from './world.ts'

let lastPid = 0

/**
 * One mongosyncID and its successive processes. Two of them run at the same time only if an operator starts a second
 * one by mistake.
 */
export class Instance {
  readonly id: string
  process: Process | null = null
  readonly #world: World
  readonly #random: Random
  /** Whether the instance is a pod: each process has pid 1 in its container, and all containers have the same name. */
  readonly #isPod: boolean
  #hostName: string
  #starts = 0

  constructor(world: World, id: string, random: Random) {
    this.#world = world
    this.id = id
    this.#random = random
    this.#hostName = `host-of-${id}`
    this.#isPod = random.chance(0.5)
  }

  get host(): Host {
    return (this.process as Process).host
  }

  start(delayMS: number): void {
    const { clock, options } = this.#world
    const skewMS = (this.#random.fraction() * 2 - 1) * options.skewMaxMS
    const drift = (this.#random.fraction() * 2 - 1) * options.driftMax
    const host = this.#isPod
      ? hostOf(this.id, `pod ${this.#starts} of ${this.id}`, 1, skewMS, drift)
      : hostOf(this.#hostName, this.#hostName, 1_000 + ++lastPid, skewMS, drift)
    const incarnation = `${this.id}x${this.#starts++}`
    clock.after(delayMS, host, () => {
      // A second process, started by mistake, would wait for the first one's lease forever.
      if (this.#world.calm && this.#world.processesOf(this.id).length > 0) return
      const process = this.#world.process(this.id, host, incarnation)
      this.process = process
      process.begin()
    })
  }

  /** Kills the process and restarts it: on the same host, where its end can be proven, or on another one. */
  crash(downMS: number, elsewhere: boolean): void {
    if (!this.process || this.host.state === 'gone') return
    this.#world.end(this.process)
    if (elsewhere) this.#hostName = `host-of-${this.id}-${this.#starts}`
    this.start(downMS)
  }

  /**
   * Stops the process like SIGSTOP. It continues later.
   * @param suspended whether the whole machine is suspended, which stops its monotonic clock
   */
  pause(milliseconds: number, suspended = false): void {
    const { process } = this
    if (process?.host.state !== 'running') return
    const { host } = process
    const { clock } = this.#world
    const stoppedAt = clock.now
    host.state = 'stopped'
    host.onResume = () => {
      if (suspended) host.suspendedMS += (clock.now - stoppedAt) * (1 + host.drift)
    }
    clock.after(milliseconds, null, () => this.#resume(host))
  }

  /** Starts a second process of the instance on another host while this process still runs or is stopped. */
  duplicate(): void {
    if (!this.process || this.host.state === 'gone') return
    if (this.#random.chance(0.5)) this.pause(this.#random.int(5_000, 30_000))
    this.#hostName = `host-of-${this.id}-${this.#starts}`
    this.start(300)
  }

  setClock(skewMS: number): void {
    if (this.process) this.host.skewMS = skewMS
  }

  /**
   * Ends all processes but one, and continues that one if it is stopped. Prefers to keep a running process with a
   * lease.
   */
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
    host.onResume()
    this.#world.clock.wake(host)
  }
}
