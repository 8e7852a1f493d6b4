import type { InstanceHeartbeat, Liveness, ObservedInstance } from '../../src/coordination/liveness.ts'
import type { Clock } from './clock.ts'

/** Simulates Redis as the liveness store of all instances. It may be unavailable, and it may lose all instances. */
export class SimulatedLiveness {
  readonly rows = new Map<string, { heartbeat: InstanceHeartbeat; at: number }>()
  unavailableUntil = 0
  readonly clock: Clock

  constructor(clock: Clock) {
    this.clock = clock
  }

  liveness(): Liveness {
    const { rows, clock } = this
    const requireAvailable = async (): Promise<void> => {
      if (this.unavailableUntil > clock.now) throw new Error('the liveness store does not answer')
    }
    const ttlMS = 4_000
    return {
      ttlMS,
      onNotified: null,
      inRounds: null,
      recentInstances: () => null,
      publish: async (heartbeat) => {
        await requireAvailable()
        rows.set(heartbeat.id, { heartbeat: structuredClone(heartbeat), at: clock.now })
      },
      instances: async () => {
        await requireAvailable()
        const observed: ObservedInstance[] = [...rows.values()].map(({ heartbeat, at }) => ({
          ...heartbeat,
          alive: clock.now - at < ttlMS,
          lastSeenSeconds: (clock.now - at) / 1_000,
          heartbeatTime: String(at),
        }))
        return observed.sort((one, other) => (one.id < other.id ? -1 : 1))
      },
      remove: async (id) => void rows.delete(id),
      notify: () => {},
      close: async () => {},
    }
  }
}
