import { Lanes } from '../../src/apply/lanes.ts'
import { SeenDefinitions } from '../../src/apply/seen-definitions.ts'
import { Barriers } from '../../src/coordination/barriers.ts'
import { Watermark } from '../../src/domain/watermark.ts'
import { Rechecks } from '../../src/verify/rechecks.ts'
import { epochMS } from './clock.ts'
import type { Network } from './network.ts'
import { partitionsMin } from './options.ts'
import type { Process } from './process.ts'

interface Mutation {
  what: string
  /** Changes the product's code; returns what changes it back. */
  code?: () => () => void
  world?: (destination: Network, now: () => number) => void
  process?: (process: Process) => void
}

/** Faults that somebody might build into tandem, or into what it stands on. The simulation must find each of them. */
const mutations = {
  'no-fence': {
    what: 'writes do not ask whether the lease still lasts',
    process: ({ destination }) => {
      destination.fence = () => {}
    },
  },
  'own-clock': {
    what: 'a lease ends by the clock of whoever looks at it, not by the server’s',
    world: ({ server }, now) => {
      server.now = () => epochMS + now() + (server.asker?.skewMS ?? 0)
    },
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
      network.showsOperations = false
    },
  },
  'positions-unfenced': {
    what: 'positions are stored without their epoch, and so by former owners, too',
    world: ({ server }) => {
      server.alter = (collection, statement) =>
        collection === 'positions' ? { ...statement, q: { _id: statement['q']._id } } : statement
    },
    process: ({ destination }) => {
      destination.fence = () => {}
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
        SeenDefinitions.prototype,
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
export const breaks = Object.keys(mutations) as Break[]

export function mutationOf(name: Break): Mutation {
  return mutations[name]
}

type Method = (this: unknown, ...given: unknown[]) => unknown

function swap(owner: object, name: string, made: (former: Method) => Method): () => void {
  const methods = owner as Record<string, Method>
  const former = methods[name]
  if (!former) throw new Error(`there is no method ${name} to be replaced`)
  methods[name] = made(former)
  return () => {
    methods[name] = former
  }
}
