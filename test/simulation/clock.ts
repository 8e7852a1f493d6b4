import { syncBuiltinESMExports } from 'node:module'
import timers from 'node:timers/promises'
import { hostProcess, type ProcessIdentity } from '../../src/mongo/host-process.ts'

/** Whose clock is read, and whose timers run: a host that may be stopped, or be gone. */
export interface Host {
  /** As it calls itself; a pod that is replaced gives its name to the next one. */
  name: string
  /** Which kernel and container it is, of which there is never another. */
  kernel: string
  pid: number
  /** Milliseconds that its wall clock is ahead. */
  skewMS: number
  /** How much faster its clocks run than true time. */
  drift: number
  state: 'running' | 'stopped' | 'gone'
  /** What came due while it was stopped. */
  deferred: Happening[]
  /** Called when a stopped one goes on. */
  onResume: () => void
  /** For how long its monotonic clock has stood still, with the machine suspended, ms. */
  suspendedMS: number
}

export interface Happening {
  at: number
  order: number
  host: Host | null
  /** True when it wakes promises, which then run to their end before anything else happens. */
  wakes: boolean
  run: () => void
  cancelled: boolean
}

/** Wall time at which every simulated world begins, ms. */
export const epochMS = 1_700_000_000_000

/**
 * True time of a simulated world, and everything that is to happen in it, in one order that the seed alone decides. While a
 * world lives, the timers and clocks of this process are the simulated ones of whichever host is at work: the product's
 * own code runs in it unchanged.
 */
export class Clock {
  /** True time since the world began, ms. */
  now = 0
  steps = 0
  current: Host | null = null
  /** Whose turn it was last. */
  last: Host | null = null
  readonly #heap: Happening[] = []
  #order = 0

  after(delayMS: number, host: Host | null, run: () => void, wakes = true): Happening {
    const happening = { at: this.now + Math.max(0, delayMS), order: this.#order++, host, wakes, run, cancelled: false }
    if (!Number.isFinite(happening.at)) throw new Error(`nothing can happen at ${happening.at} ms`)
    this.#push(happening)
    return happening
  }

  /** What a stopped host missed happens now. */
  wake(host: Host): void {
    for (const happening of host.deferred.splice(0)) {
      happening.at = this.now
      happening.order = this.#order++
      this.#push(happening)
    }
  }

  /** Runs what comes next; false when nothing ever will. */
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
      if (next.wakes) await settled()
      this.current = null
      return true
    }
  }

  #push(happening: Happening): void {
    const heap = this.#heap
    let at = heap.length
    heap.push(happening)
    while (at > 0) {
      const above = (at - 1) >> 1
      const parent = heap[above] as Happening
      if (!isBefore(happening, parent)) break
      heap[at] = parent
      at = above
    }
    heap[at] = happening
  }

  #pop(): Happening | undefined {
    const heap = this.#heap
    const first = heap[0]
    const last = heap.pop()
    if (!first || !last || heap.length === 0) return first
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      if (below >= heap.length) break
      if (below + 1 < heap.length && isBefore(heap[below + 1] as Happening, heap[below] as Happening)) below += 1
      const child = heap[below] as Happening
      if (!isBefore(child, last)) break
      heap[at] = child
      at = below
    }
    heap[at] = last
    return first
  }
}

function isBefore(one: Happening, other: Happening): boolean {
  return one.at < other.at || (one.at === other.at && one.order < other.order)
}

const immediate = setImmediate
/** Resolves when every promise that could be settled has been, and all that waited for it has run. */
function settled(): Promise<void> {
  return new Promise((resolve) => immediate(resolve))
}

/** Puts the world's clocks and timers in the place of this process's own. Returns what puts them back. */
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
  const later = (run: () => void, delayMS: number): Happening =>
    clock.after(Math.max(1, delayMS || 0) / (1 + host().drift), clock.current, run)
  class Timer {
    happening: Happening | null = null
    ref(): this {
      return this
    }
    unref(): this {
      return this
    }
  }
  const setOnce = (run: (...given: unknown[]) => void, delayMS = 0, ...given: unknown[]): Timer => {
    const timer = new Timer()
    timer.happening = later(() => run(...given), delayMS)
    return timer
  }
  const setAgain = (run: (...given: unknown[]) => void, delayMS = 0, ...given: unknown[]): Timer => {
    const timer = new Timer()
    const tick = (): void => {
      timer.happening = later(tick, delayMS)
      run(...given)
    }
    timer.happening = later(tick, delayMS)
    return timer
  }
  const clear = (timer: Timer | null | undefined): void => {
    if (timer?.happening) timer.happening.cancelled = true
  }
  const sleep = (delayMS = 0, value?: unknown, { signal }: { signal?: AbortSignal } = {}): Promise<unknown> =>
    new Promise((resolve, reject) => {
      const stop = (): void => {
        happening.cancelled = true
        reject(new DOMException('The operation was aborted', 'AbortError'))
      }
      const happening = later(() => {
        signal?.removeEventListener('abort', stop)
        resolve(value)
      }, delayMS)
      if (signal?.aborted) stop()
      else signal?.addEventListener('abort', stop, { once: true })
    })
  const put = [
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
    for (const back of put) back()
    hostsByPid.clear()
    syncBuiltinESMExports()
  }
}

/** By kernel and pid. */
const hostsByPid = new Map<string, Host>()

/** A host on which one process runs, or will. */
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
