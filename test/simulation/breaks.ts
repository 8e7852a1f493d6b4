import { Lanes } from '../../src/apply/lanes.ts'
import { ObservedDefinitions } from '../../src/apply/observed-definitions.ts'
import { Barriers } from '../../src/coordination/barriers.ts'
import { Watermark } from '../../src/domain/watermark.ts'
import type { StreamPosition } from '../../src/mongo/change-stream.ts'
import { hostClocks } from '../../src/mongo/host-clocks.ts'
import { hostProcess, type ProcessIdentity } from '../../src/mongo/host-process.ts'
import { LeaseWatch } from '../../src/mongo/lease-watch.ts'
import { type Publication, SharedStream } from '../../src/mongo/shared-stream.ts'
import { Rechecks } from '../../src/verify/rechecks.ts'
import { coordinatorMutations } from './coordinator-breaks.ts'
import { copyMutations } from './copy-breaks.ts'
import { type Mutation, swap } from './mutation.ts'
import type { Network } from './network.ts'
import { partitionsMin } from './options.ts'
import type { Process } from './process.ts'
import { sharingMutations } from './sharing-breaks.ts'

let destinationNow = (): number => 0

/**
 * Makes writes carry no transaction numbers, as on a sharded cluster. On a replica set, the server rejects most writes
 * that a missing guard lets through, because of their numbers, which hides the defect.
 */
function unnumbered({ destination }: Process): void {
  destination.sessions = null
}
function deliverInTime(destination: Network): void {
  destination.hold = () => {}
}

/** Defects of tandem, or of the clusters and hosts that it relies on. The simulation must detect each of them. */
const mutations = {
  'no-fence': {
    what: 'writes do not check whether the lease is still valid',
    world: deliverInTime,
    process: (process) => {
      unnumbered(process)
      process.destination.fence = () => {}
    },
  },
  'stored-expiry': {
    what: 'a lease ends when its stored expiry has passed by the destination’s clock',
    world: ({ server }) => {
      destinationNow = () => server.now()
    },
    code: () =>
      swap(LeaseWatch.prototype, 'isUnrenewed', () => (_, lease) => {
        return (lease as { expiresAt: Date }).expiresAt.getTime() < destinationNow()
      }),
  },
  'monotonic-alone': {
    what: 'a lease is timed by the monotonic clock alone, which stops while the machine is suspended',
    world: deliverInTime,
    process: unnumbered,
    code: () =>
      swap(hostClocks, 'longestSince', () => (moment) => {
        return performance.now() - (moment as { monotonic: number }).monotonic
      }),
  },
  'name-and-pid': {
    what: 'a process also counts as ended if its host name and pid equal those of the process that checks it',
    code: () =>
      swap(hostProcess, 'hasEnded', (hasEnded) => (other) => {
        const { pidNamespace: name, pid } = other as ProcessIdentity
        const own = hostProcess.identity()
        return (own?.pidNamespace === name && own.pid === pid) || hasEnded(other) === true
      }),
  },
  'blind-claim': {
    what: 'a claim is written without checking that it has not changed since it was read',
    world: ({ server }) => {
      server.alter = (collection, statement) =>
        collection === 'ownership' && statement['q'].epoch !== undefined
          ? { ...statement, q: { _id: statement['q']._id } }
          : statement
    },
  },
  'no-drain': {
    what: 'no instance waits for writes of an ended instance that are still in progress',
    world: (network) => {
      deliverInTime(network)
      network.operations.showsOperations = false
    },
    process: unnumbered,
  },
  'late-accepted': {
    what: 'a delayed write that its sender no longer waits for is executed, whatever its transaction number is',
    world: (network) => {
      network.operations.alterNumber = () => 0n
    },
  },
  'sessions-left-open': {
    what: 'no instance closes the sessions of an ended instance',
    world: (network) => {
      network.operations.alterNumber = (number) => ((number & 0xffffffffn) === 0n ? 0n : number)
    },
  },
  'positions-unfenced': {
    what: 'positions are stored without a check of their epoch, so former owners can store them',
    world: (destination) => {
      deliverInTime(destination)
      destination.server.alter = (collection, statement) =>
        collection === 'positions' ? { ...statement, q: { _id: statement['q']._id } } : statement
    },
    process: (process) => {
      unnumbered(process)
      process.destination.fence = () => {}
    },
  },
  'watermark-early': {
    what: 'a position counts as safe one batch too early',
    code: () =>
      swap(
        Watermark.prototype,
        'hold',
        (hold) =>
          function (this: unknown, lane, batch) {
            hold.call(this, lane, (batch as number) + 1)
          },
      ),
  },
  'lost-event': {
    what: 'one in two hundred changes is read but never applied',
    code: () => {
      let put = 0
      return swap(
        Lanes.prototype,
        'put',
        (former) =>
          function (this: unknown, ...given) {
            put += 1
            if (put % 200 !== 0) former.apply(this, given)
          },
      )
    },
  },
  'barrier-early': {
    what: 'no instance waits at a barrier',
    code: () => swap(Barriers.prototype, 'whenDone', () => async () => []),
  },
  'seen-too-much': {
    what: 'one read of the catalog of a database counts for all later changes in it',
    code: () =>
      swap(
        ObservedDefinitions.prototype,
        'hasAll',
        (hasAll) =>
          function (this: unknown, touched, _time, isKnown) {
            return hasAll.call(this, touched, 1n, isKnown)
          },
      ),
  },
  'barrier-for-all': {
    what: 'an instance that reaches a barrier reports it for partitions that it has not read',
    code: () =>
      swap(
        Barriers.prototype,
        'reach',
        (reach) =>
          function (this: unknown, time, touched) {
            return reach.call(this, time, touched, [...Array(partitionsMin).keys()])
          },
      ),
  },
  ...coordinatorMutations,
  ...copyMutations,
  ...sharingMutations,
  'shared-ahead': {
    what: 'the verifier joins the shared stream although event application is up to 5 s ahead of it',
    code: () =>
      swap(
        SharedStream.prototype,
        'join',
        (join) =>
          function (this: unknown, position, ...rest) {
            const { time } = position as StreamPosition
            return join.call(this, { kind: 'time', time: time + (5n << 32n) }, ...rest)
          },
      ),
  },
  'shared-batch-lost': {
    what: 'one in twenty batches is not passed from event application to the verifier',
    code: () => {
      let published = 0
      return swap(
        SharedStream.prototype,
        'publish',
        (publish) =>
          function (this: unknown, ...given) {
            const publication = publish.apply(this, given) as Publication
            const lossy: Publication['publish'] = (batch) => {
              published += 1
              if (published % 20 !== 0) publication.publish(batch)
            }
            return { ...publication, publish: lossy }
          },
      )
    },
  },
  'verifier-blind': {
    what: 'the verifier ignores changes on the destination',
    code: () =>
      swap(
        Rechecks.prototype,
        'changed',
        (changed) =>
          function (this: unknown, uuid, idElement, side, ...rest) {
            if (side === 'source') changed.call(this, uuid, idElement, side, ...rest)
          },
      ),
  },
} satisfies Record<string, Mutation>

export type Break = keyof typeof mutations
/** Mutations that only worlds with initially uncopied collections can detect. */
export const breaksOfTheCopy = Object.keys(copyMutations) as Break[]
/** Mutations that only worlds with a shared first pass of the verifier can detect. */
export const breaksOfSharing = Object.keys(sharingMutations) as Break[]
export const breaks = Object.keys(mutations) as Break[]

export function mutationOf(name: Break): Mutation {
  return mutations[name]
}
