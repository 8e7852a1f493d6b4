import { type Offer, type OfferState, RangeClaims } from '../../src/mongo/range-claims.ts'
import { Suspects } from '../../src/verify/suspects.ts'
import { type Mutation, swap } from './mutation.ts'

/** Has more entries than any offer has ranges. */
const results = Array.from({ length: 100 }, () => ({ source: 0, destination: 0, bytes: 0 }))

/** So late that the process may have ended. */
const lateMS = 5_000

/**
 * Defects of the first pass that several instances share. Only worlds in which collections have many ranges can detect them.
 * The simulation cannot detect that an instance ignores the time at which it must read the source, because a simulated server answers
 * each read with its present documents. `test/verify/helper-reads.mongo.test.ts` tests that time.
 */
export const sharingMutations = {
  'claim-verifies': {
    what: 'the coordinator takes a range that another instance has claimed for verified',
    code: () =>
      swap(
        RangeClaims.prototype,
        'states',
        (states) =>
          async function (this: unknown, pass) {
            const found = (await states.call(this, pass)) as OfferState[]
            return found.map((state) => (state.owner === null ? state : { ...state, results }))
          },
      ),
  },
  'ended-claim-verifies': {
    what: 'the coordinator takes the ranges of an instance that has ended for verified',
    code: () => {
      /** By pass. */
      const ended = new Map<unknown, OfferState[]>()
      const reverts = [
        swap(
          RangeClaims.prototype,
          'takeBack',
          (takeBack) =>
            async function (this: unknown, pass, offers) {
              const claimed = (offers as OfferState[]).filter(({ owner }) => owner !== null)
              ended.set(pass, [...(ended.get(pass) ?? []), ...claimed.map((offer) => ({ ...offer, results }))])
              await takeBack.call(this, pass, offers)
            },
        ),
        swap(
          RangeClaims.prototype,
          'states',
          (states) =>
            async function (this: unknown, pass) {
              return [...((await states.call(this, pass)) as OfferState[]), ...(ended.get(pass) ?? [])]
            },
        ),
      ]
      return () => {
        for (const revert of reverts) revert()
      }
    },
  },
  'differences-unstored': {
    what: 'an instance completes a range and does not store the documents that differ',
    code: () => swap(Suspects.prototype, 'store', () => async () => {}),
  },
  'differences-stored-late': {
    what: 'an instance completes a range before it stores the documents that differ',
    code: () =>
      swap(
        Suspects.prototype,
        'store',
        (store) =>
          async function (this: unknown) {
            setTimeout(() => void (store.call(this) as Promise<void>).catch(() => {}), lateMS)
          },
      ),
  },
  'results-of-another-pass': {
    what: 'the coordinator takes the results of an earlier pass for those of its own offers',
    code: () => {
      const onePass = 'one pass'
      const reverts = [
        swap(RangeClaims.prototype, 'clear', () => async () => {}),
        swap(
          RangeClaims.prototype,
          'offer',
          (offer) =>
            function (this: unknown, offers, term) {
              const all = (offers as Offer[]).map((one) => ({ ...one, pass: onePass }))
              return offer.call(this, all, term)
            },
        ),
        ...(['states', 'remove', 'takeBack'] as const).map((name) =>
          swap(
            RangeClaims.prototype,
            name,
            (former) =>
              function (this: unknown, _pass, ...rest) {
                return former.call(this, onePass, ...rest)
              },
          ),
        ),
      ]
      return () => {
        for (const revert of reverts) revert()
      }
    },
  },
} satisfies Record<string, Mutation>
