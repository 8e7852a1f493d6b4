import { syncBuiltinESMExports } from 'node:module'
import timers from 'node:timers/promises'
import { hostProcess, type ProcessIdentity } from '../../src/mongo/host-process.ts'

/** A host with its own clock and timers. It may be stopped, or its process may have ended. */
export interface Host {
  /** Host name. A pod passes its name on to its replacement. */
  name: string
  /** Unique identity of the kernel and container. */
  kernel: string
  pid: number
  /** Milliseconds that its wall clock is ahead. */
  skewMS: number
  /** How much faster its clocks run than true time. */
  drift: number
  state: 'running' | 'stopped' | 'gone'
  /** Events that came due while the host was stopped. */
  deferred: ScheduledEvent[]
  /** Called when a stopped host continues. */
  onResume: () => void
  /** Milliseconds for which the monotonic clock stopped because the machine was suspended. */
  suspendedMS: number
}

export interface ScheduledEvent {
  at: number
  order: number
  host: Host | null
  /** Whether the event resolves promises. If so, their continuations run before the next event. */
  wakes: boolean
  run: () => void
  cancelled: boolean
}

/** Wall time at which every simulated world begins, ms. */
export const epochMS = 1_700_000_000_000

/**
 * True time of a simulated world, and its queue of scheduled events, whose order the seed alone determines. While a world runs, the
 * timers and clocks of this process are replaced by those of the simulated host whose event is executed, so the product's code runs
 * unchanged.
 */
export class Clock {
  /** True time since the world began, ms. */
  now = 0
  steps = 0
  current: Host | null = null
  /** The host of the last event. */
  last: Host | null = null
  readonly #heap: ScheduledEvent[] = []
  #order = 0

  after(delayMS: number, host: Host | null, run: () => void, wakes = true): ScheduledEvent {
    const event = { at: this.now + Math.max(0, delayMS), order: this.#order++, host, wakes, run, cancelled: false }
    if (!Number.isFinite(event.at)) throw new Error(`no event can be scheduled at ${event.at} ms`)
    this.#push(event)
    return event
  }

  /** Schedules the events that a stopped host has missed. Their time is the present. */
  wake(host: Host): void {
    for (const event of host.deferred.splice(0)) {
      event.at = this.now
      event.order = this.#order++
      this.#push(event)
    }
  }

  /** Runs the next event. Returns false if no event is scheduled. */
  async step(): Promise<boolean> {
    for (;;) {
      const next = this.#pop()
      if (!next) return false
      if (next.cancelled) continue
      this.now = next.at
      if (next.host?.state === 'gone') continue
      if (next.host?.state === 'stopped') {
        next.host.deferred.push(next)
        continue
      }
      this.steps += 1
      this.current = next.host
      this.last = next.host
      next.run()
      if (next.wakes) await continuationsDone()
      this.current = null
      return true
    }
  }

  #push(event: ScheduledEvent): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(event)
    while (at > 0) {
      const above = (at - 1) >> 1
      const parent = heap[above] as ScheduledEvent
      if (!isBefore(event, parent)) break
      heap[at] = parent
      at = above
    }
    heap[at] = event
  }

  #pop(): ScheduledEvent | undefined {
    const heap = this.#heap
    const first = heap[0]
    const last = heap.pop()
    if (!first || !last || heap.length === 0) return first
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      if (below >= heap.length) break
      if (below + 1 < heap.length && isBefore(heap[below + 1] as ScheduledEvent, heap[below] as ScheduledEvent))
        below += 1
      const child = heap[below] as ScheduledEvent
      if (!isBefore(child, last)) break
      heap[at] = child
      at = below
    }
    heap[at] = last
    return first
  }
}

function isBefore(one: ScheduledEvent, other: ScheduledEvent): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order)
}

const immediate = setImmediate
/** Resolves when the continuations of all promises that are already resolved have run. */
function continuationsDone(): Promise<void> {
  return new Promise((resolve) => immediate(resolve))
}

/** Replaces the clocks and timers of this process by those of the world. Returns a function that restores them. */
export function takeOverTime(clock: Clock): () => void {
  const host = (): Host => clock.current ?? outside
  const localMS = (): number => clock.now * (1 + host().drift)
  const wallMS = (): number => Math.floor(epochMS + localMS() + host().skewMS)
  const monotonicMS = (): number => localMS() - host().suspendedMS
  const identity = (): ProcessIdentity => {
    const { name, kernel, pid } = host()
    return { bootID: kernel, pidNamespace: name, pid, startedAt: '0' }
  }
  const hasEnded = ({ bootID, pid }: ProcessIdentity): boolean =>
    bootID === host().kernel && hostsByPid.get(`${bootID} ${pid}`)?.state === 'gone'
  const RealDate = Date
  class SimulatedDate extends RealDate {
    constructor(...given: unknown[]) {
      super(...((given.length === 0 ? [wallMS()] : given) as [number]))
    }
    static override now(): number {
      return wallMS()
    }
  }
  const later = (run: () => void, delayMS: number): ScheduledEvent =>
    clock.after(Math.max(1, delayMS || 0) / (1 + host().drift), clock.current, run)
  class Timer {
    event: ScheduledEvent | null = null
    ref(): this {
      return this
    }
    unref(): this {
      return this
    }
  }
  const setOnce = (run: (...given: unknown[]) => void, delayMS = 0, ...given: unknown[]): Timer => {
    const timer = new Timer()
    timer.event = later(() => run(...given), delayMS)
    return timer
  }
  const setAgain = (run: (...given: unknown[]) => void, delayMS = 0, ...given: unknown[]): Timer => {
    const timer = new Timer()
    const tick = (): void => {
      timer.event = later(tick, delayMS)
      run(...given)
    }
    timer.event = later(tick, delayMS)
    return timer
  }
  const clear = (timer: Timer | null | undefined): void => {
    if (timer?.event) timer.event.cancelled = true
  }
  const sleep = (delayMS = 0, value?: unknown, { signal }: { signal?: AbortSignal } = {}): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const stop = (): void => {
        event.cancelled = true
        reject(new DOMException('The operation was aborted', 'AbortError'))
      }
      const event = later(() => {
        signal?.removeEventListener('abort', stop)
        resolve(value)
      }, delayMS)
      if (signal?.aborted) stop()
      else signal?.addEventListener('abort', stop, { once: true })
    })
  const restorers = [
    replace(globalThis, 'setTimeout', setOnce),
    replace(globalThis, 'setInterval', setAgain),
    replace(globalThis, 'clearTimeout', clear),
    replace(globalThis, 'clearInterval', clear),
    replace(globalThis, 'Date', SimulatedDate),
    replace(performance, 'now', monotonicMS),
    replace(AbortSignal, 'timeout', (timeoutMS: number) => ({ timeoutMS })),
    replace(timers, 'setTimeout', sleep),
    replace(hostProcess, 'identity', identity),
    replace(hostProcess, 'hasEnded', hasEnded),
  ]
  syncBuiltinESMExports()
  return () => {
    for (const restore of restorers) restore()
    hostsByPid.clear()
    syncBuiltinESMExports()
  }
}

/** Hosts by kernel and pid. */
const hostsByPid = new Map<string, Host>()

/** Creates a host for one process. */
export function hostOf(name: string, kernel: string, pid: number, skewMS = 0, drift = 0): Host {
  const host: Host = {
    name,
    kernel,
    pid,
    skewMS,
    drift,
    state: 'running',
    deferred: [],
    suspendedMS: 0,
    onResume: () => {},
  }
  hostsByPid.set(`${kernel} ${pid}`, host)
  return host
}

const outside = hostOf('outside', 'outside', 1)

function replace(owner: object, name: string, value: unknown): () => void {
  const former = Object.getOwnPropertyDescriptor(owner, name)
  const enumerable = former?.enumerable ?? true
  Object.defineProperty(owner, name, { configurable: true, writable: true, enumerable, value })
  return () => {
    if (former) Object.defineProperty(owner, name, former)
    else Reflect.deleteProperty(owner, name)
  }
}
