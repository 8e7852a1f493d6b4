import { podsAreAllowed } from '../../support/pod.ts'
import { Random } from '../../support/random.ts'
import { type SteppedClock, startSteppedClock } from '../../support/stepped-clock.ts'
import { type Pair, startPair } from '../clusters.ts'
import { clockSteps, clockStepsName, lateDelivery, podReplacement, suspension } from '../fencing-faults.ts'
import { chosenFaults, type FaultPlan, type PlanOptions, seedsOf } from '../plan.ts'
import { type InstanceFault, migrateBySeveral } from '../several-instances.ts'

interface FencedPair extends Pair {
  clock: SteppedClock
}

/** A fault's name, and the function that creates the fault for a pair of clusters. */
interface Variant {
  name: string
  make: (clock: SteppedClock) => InstanceFault
}

const seconds = (from: number, to: number): [number, number] => [from * 1_000, to * 1_000]
/** One run in this many is long: writes are late, or an instance is suspended, for up to a minute. */
const longEvery = 8
const stepsMax = 60
const bulkMax = 20_000

const ready = (fault: InstanceFault): Variant => ({ name: fault.name, make: () => fault })

const stepped = (count: number): Variant => ({
  name: clockStepsName(count),
  make: (clock) => clockSteps(clock, count),
})

/** Faults by kind. Successive seeds of a kind take its variants in turn. */
const kinds: Record<string, (long: boolean) => Variant[]> = {
  late: (long) => {
    // The driver gives up hanging connections after half a minute.
    if (long) return [ready(lateDelivery('hanging', { lateMS: seconds(32, 40), rounds: 1, when: 'running' }))]
    const lateMS = seconds(5, 9)
    return [
      ready(lateDelivery('cut', { lateMS, rounds: 1, when: 'running' })),
      ready(lateDelivery('cut', { lateMS, rounds: 1, when: 'at commit' })),
      ready(lateDelivery('cut', { lateMS, rounds: 2, when: 'running' })),
    ]
  },
  clock: () => [stepped(1), stepped(2), stepped(3)],
  suspension: (long) => {
    const awayMS = long ? seconds(20, 60) : seconds(5, 14)
    return [
      // The second argument says what the monotonic clock of the suspended instance does.
      ready(suspension('coordinator', 'keep running', awayMS)),
      ready(suspension('first', 'stop', awayMS)),
      ready(suspension('first', 'keep running', awayMS)),
      ready(suspension('coordinator', 'stop', awayMS)),
    ]
  },
  replacement: (long) => {
    // The predecessor and its replacement run at the same time for this long.
    const overlapMS = long ? seconds(11, 14) : seconds(1, 5)
    return [ready(podReplacement('killed', overlapMS)), ready(podReplacement('suspended', overlapMS))]
  },
}

/**
 * Runs one or two instances without the verifier, with delayed writes, steps of the destination's clock, a suspended instance, or a pod
 * that is replaced while it runs.
 */
export function fencingPlan(options: PlanOptions): FaultPlan<FencedPair> {
  const steps = Math.min(options.steps ?? 120, stepsMax)
  const bulk = Math.min(options.bulk ?? 120_000, bulkMax)
  const chosen = chosenFaults(Object.keys(kinds), options.faults)
  return {
    open: async () => {
      if (chosen.includes('replacement') && !(await podsAreAllowed())) {
        throw new Error('this system does not allow namespaces (unshare): leave `replacement` out of --faults')
      }
      const clock = await startSteppedClock()
      const pair = await startPair({ oplogSizeMB: 2_048, destinationClock: clock, bulk })
      const close = async (): Promise<void> => {
        await pair[Symbol.asyncDispose]()
        clock.close()
      }
      return { ...pair, clock, [Symbol.asyncDispose]: close }
    },
    runs: seedsOf(options).map((seed) => {
      const round = Math.floor(seed / chosen.length)
      const variants = kinds[chosen[seed % chosen.length] ?? '']?.(round % longEvery === longEvery - 1) ?? []
      const { name, make } = variants[round % variants.length] as Variant
      const instances = options.instances || new Random(`instances ${seed}`).int(1, 2)
      return {
        name: `${instances} instances, ${name}, seed ${seed}`,
        perform: async (pair) => {
          const fault = make(pair.clock)
          const { problems, documents, faults } = await migrateBySeveral({ pair, seed, instances, fault, steps })
          return { problems, summary: `${documents} documents, ${faults} faults` }
        },
      }
    }),
  }
}
