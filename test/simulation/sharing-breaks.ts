import { type OfferState, RangeClaims } from '../../src/mongo/range-claims.ts'
import { Suspects } from '../../src/verify/suspects.ts'
import { type Mutation, swap } from './mutation.ts'

/** More results than an offer has ranges. */
const results = Array.from({ length: 100 }, () => ({ source: 0, destination: 0, bytes: 0 }))

/** Defects of the first pass that several instances share. Only worlds in which collections have many ranges can detect them. */
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
} satisfies Record<string, Mutation>
