import type { InstanceHeartbeat, Liveness, ObservedInstance } from '../../src/coordination/liveness.ts'
import type { Clock } from './clock.ts'

/** What a Redis would hold of all instances: it may be away, and it may forget everybody. */
export class BelievingStore {
  readonly rows = new Map<string, { beat: InstanceHeartbeat; at: number }>()
  awayUntil = 0
  readonly clock: Clock

  constructor(clock: Clock) {
    this.clock = clock
  }

  liveness(): Liveness {
    const { rows, clock } = this
    const answer = async (): Promise<void> => {
      if (this.awayUntil > clock.now) throw new Error('it does not answer')
    }
    const ttlMS = 4_000
    return {
      ttlMS,
      onNotified: null,
      publish: async (beat) => {
        await answer()
        rows.set(beat.id, { beat: structuredClone(beat), at: clock.now })
      },
      instances: async () => {
        await answer()
        const seen: ObservedInstance[] = [...rows.values()].map(({ beat, at }) => ({
          ...beat,
          alive: clock.now - at < ttlMS,
          lastSeenSeconds: (clock.now - at) / 1_000,
        }))
        return seen.sort((one, other) => (one.id < other.id ? -1 : 1))
      },
      forget: async (id) => void rows.delete(id),
      notify: () => {},
      close: async () => {},
    }
  }
}
