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
import { copyMutations } from './copy-breaks.ts'
import { type Mutation, swap } from './mutation.ts'
import type { Network } from './network.ts'
import { partitionsMin } from './options.ts'
import type { Process } from './process.ts'

let destinationNow = (): number => 0

/** Writes to a sharded cluster carry no numbers. Elsewhere the numbers refuse most of what a missing guard lets through, and hide it. */
function unnumbered({ destination }: Process): void {
  destination.sessions = null
}
function deliverInTime(destination: Network): void {
  destination.hold = () => {}
}

/** Faults that somebody might build into tandem, or into what it stands on. The simulation must find each of them. */
const mutations = {
  'no-fence': {
    what: 'writes do not ask whether the lease still lasts',
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
    what: 'a lease lasts as long as the monotonic clock says, which stands still with its machine',
    world: deliverInTime,
    process: unnumbered,
    code: () =>
      swap(hostClocks, 'longestSince', () => (moment) => {
        return performance.now() - (moment as { monotonic: number }).monotonic
      }),
  },
  'name-and-pid': {
    what: 'a process of the same host name whose pid is gone, or is one’s own, counts as dead',
    code: () =>
      swap(hostProcess, 'hasEnded', (hasEnded) => (other) => {
        const { pidNamespace: name, pid } = other as ProcessIdentity
        const own = hostProcess.identity()
        return (own?.pidNamespace === name && own.pid === pid) || hasEnded(other) === true
      }),
  },
  'blind-claim': {
    what: 'a claim is written without looking whether it is still as it was seen',
    world: ({ server }) => {
      server.alter = (collection, statement) =>
        collection === 'ownership' && statement['q'].epoch !== undefined
          ? { ...statement, q: { _id: statement['q']._id } }
          : statement
    },
  },
  'no-burial': {
    what: 'nobody waits for the writes that a dead instance still has under way',
    world: (network) => {
      deliverInTime(network)
      network.showsOperations = false
    },
    process: unnumbered,
  },
  'late-accepted': {
    what: 'a write that is delivered after it was given up is carried out, whatever its number',
    world: (network) => {
      network.alterNumber = () => 0n
    },
  },
  'sessions-left-open': {
    what: 'nobody closes the sessions of a dead instance',
    world: (network) => {
      network.alterNumber = (number) => ((number & 0xffffffffn) === 0n ? 0n : number)
    },
  },
  'positions-unfenced': {
    what: 'positions are stored without their epoch, and so by former owners, too',
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
    what: 'one change in two hundred is read and never applied',
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
    what: 'nobody waits at a barrier',
    code: () => swap(Barriers.prototype, 'whenDone', () => async () => []),
  },
  'seen-too-much': {
    what: 'one look at a database counts for all that changes in it later',
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
    what: 'whoever comes to a barrier speaks for partitions that it has not read',
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
  ...copyMutations,
  'shared-ahead': {
    what: 'the verifier takes the batches of event application that is up to 5 s ahead of it',
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
    what: 'one batch in twenty does not get from event application to the verifier',
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
    what: 'the verifier does not look at what changes on the destination',
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
/** Only worlds whose collections begin uncopied can find these. */
export const breaksOfTheCopy = Object.keys(copyMutations) as Break[]
export const breaks = Object.keys(mutations) as Break[]

export function mutationOf(name: Break): Mutation {
  return mutations[name]
}
