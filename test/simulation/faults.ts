import type { Random } from '../support/random.ts'
import type { Host } from './clock.ts'
import type { Instance } from './instance.ts'
import type { Network } from './network.ts'
import type { World } from './world.ts'

/** Injects faults into a world at random times until `end` is called. */
export class Faults {
  readonly counts = new Map<string, number>()
  readonly #world: World
  readonly #random: Random
  #over = false

  constructor(world: World, random: Random) {
    this.#world = world
    this.#random = random
  }

  begin(): void {
    const { clock, options } = this.#world
    if (options.faultRate <= 0) return
    this.#world.destination.onLostWrite = (host) => this.#loseWrite(host)
    const untilNextMS = (-Math.log(1 - this.#random.fraction()) * 1_000) / options.faultRate
    clock.after(untilNextMS, null, () => {
      if (this.#over) return
      this.#injectOne()
      this.begin()
    })
  }

  /** Stops injecting faults, restores the networks, and lets stopped or ended instances continue. */
  end(): void {
    this.#over = true
    this.#world.calm = true
    const { source, destination, livenessStore, instances } = this.#world
    source.heal()
    destination.heal()
    if (livenessStore) livenessStore.unavailableUntil = 0
    for (const instance of instances) instance.recover()
  }

  #injectOne(): void {
    const world = this.#world
    const random = this.#random
    const started = world.instances.filter(({ process }) => process !== null)
    if (started.length === 0) return
    const instance = random.pick(started)
    const network = random.chance(0.7) ? world.destination : world.source
    const seconds = (from: number, to: number): number => random.int(from * 1_000, to * 1_000)
    const faults: [number, string, () => void][] = [
      [10, 'crash', () => instance.crash(seconds(0, 5) + 300, random.chance(0.3))],
      [8, 'pause', () => instance.pause(seconds(1, 40))],
      [4, 'suspended machine', () => instance.pause(seconds(1, 40), true)],
      [8, 'partition', () => network.cut(instance.host, seconds(1, 30), random.chance(0.5))],
      [4, 'partition from both', () => this.#cutOff(instance, seconds(1, 30))],
      [5, 'election', () => this.#elect(network, seconds(0, 4))],
      [2, 'clock of the destination set', () => this.#setServerClock()],
      [4, 'stuck writes', () => this.#stick(instance, seconds(2, 10))],
      [4, 'late delivery', () => this.#holdBack(instance, seconds(1, 6))],
      [5, 'duplicate process', () => instance.duplicate()],
      [2, 'leave', () => instance.crash(seconds(20, 60), true)],
      [4, 'silent shard', () => world.shards.silence(seconds(1, 8))],
      [3, 'foreign write', () => world.tamper(random)],
      [3, 'clock set', () => instance.setClock((random.fraction() * 2 - 1) * world.options.skewMaxMS)],
      [world.livenessStore ? 4 : 0, 'liveness store unavailable', () => this.#makeLivenessUnavailable(seconds(1, 12))],
      [world.livenessStore ? 2 : 0, 'liveness store loses its data', () => world.livenessStore?.rows.clear()],
    ]
    const [, name, inject] = random.weighted(faults.map((one) => [one[0], one] as const))
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1)
    inject()
  }

  /** Elects another member as primary, which has a clock of its own. */
  #elect(network: Network, milliseconds: number): void {
    network.operations.elect(milliseconds)
    if (network === this.#world.destination) this.#setServerClock()
  }

  #setServerClock(): void {
    this.#world.destination.server.skewMS = (this.#random.fraction() * 2 - 1) * 60_000
  }

  #cutOff(instance: Instance, milliseconds: number): void {
    this.#world.source.cut(instance.host, milliseconds, false)
    this.#world.destination.cut(instance.host, milliseconds, false)
  }

  #stick(instance: Instance, milliseconds: number): void {
    const { destination, clock } = this.#world
    destination.operations.stuckChance = 0.15
    // An instance that dies now leaves writes that are still in progress on the server.
    if (this.#random.chance(0.5))
      clock.after(1_000, null, () => !this.#over && instance.crash(this.#random.int(300, 3_000), true))
    clock.after(milliseconds, null, () => {
      destination.operations.stuckChance = 0
    })
  }

  /**
   * Delays writes of the instance. They may arrive after the instance has retried them, or after others have replaced
   * it.
   */
  #holdBack(instance: Instance, milliseconds: number): void {
    const { destination, clock } = this.#world
    destination.hold(instance.host, milliseconds)
    if (this.#random.chance(0.5))
      clock.after(1_000, null, () => !this.#over && instance.crash(this.#random.int(300, 3_000), true))
  }

  /**
   * Called when a host sends a write that `isOftenLost` names, such as the removal of a plan of the copy. May delay
   * the writes of that host and end its process. The write then usually arrives after another instance has taken over.
   */
  #loseWrite(host: Host): void {
    const { destination, clock } = this.#world
    if (this.#over || !this.#random.chance(destination.lossChance)) return
    this.counts.set('write held back', (this.counts.get('write held back') ?? 0) + 1)
    destination.hold(host, this.#random.int(100, 6_000))
    clock.after(this.#random.int(1, 1_000), null, () => {
      const sender = this.#world.instances.find(({ process }) => process?.host === host)
      if (!this.#over && this.#random.chance(0.8)) sender?.crash(this.#random.int(300, 6_000), true)
    })
  }

  #makeLivenessUnavailable(milliseconds: number): void {
    const { livenessStore, clock } = this.#world
    if (livenessStore) livenessStore.unavailableUntil = clock.now + milliseconds
  }
}
