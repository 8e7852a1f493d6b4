import { assign, fromPromise, setup } from 'xstate'
import type { ElectionEvent } from './protocol.ts'

export interface CampaignInput {
  /** mongosyncID of the candidate. */
  self: string
}

/**
 * Who coordinates: one holder of one office, which the metadata database keeps, each tenure under an epoch of its own.
 *
 * unknown      Nothing has been seen of the office yet. `coordinatorID` is null.
 * following    Another instance holds it.
 * campaigning  It is vacant: claimed by compare-and-set, which one of several candidates wins.
 * leading      Held, for as long as every look finds it held and the instance's lease lasts, or until it begins to give it up
 *              (`lease.lost` stands for both: what it does from then on would be in a tenure that is over).
 *
 * The machine believes only what a look at the office showed. It never leads by its own judgement: a campaign whose answer was
 * lost ends in `unknown`, and the next look tells who won.
 */
export const electionMachine = setup({
  types: {
    context: {} as { self: string; holder: string | null },
    events: {} as ElectionEvent,
    input: {} as { self: string },
  },
  actors: {
    /** Resolves with true when the office is won, false when somebody else was faster. */
    campaign: fromPromise<boolean, CampaignInput>(() => {
      throw new Error('actor campaign is not provided')
    }),
  },
  guards: {
    isMine: ({ event }) => event.type === 'office.seen' && event.mine,
    isOthers: ({ event }) => event.type === 'office.seen' && !event.mine && !event.vacant,
    isElected: ({ event }) => (event as unknown as { output: boolean }).output,
    isVacant: ({ event }) => event.type === 'office.seen' && event.vacant && event.eligible,
  },
  actions: {
    rememberHolder: assign({
      holder: ({ event, context }) => (event.type === 'office.seen' && !event.vacant ? event.holder : context.holder),
    }),
    isSelf: assign({ holder: ({ context }) => context.self }),
  },
}).createMachine({
  id: 'election',
  context: ({ input }) => ({ self: input.self, holder: null }),
  initial: 'unknown',
  on: { 'lease.lost': '.unknown' },
  states: {
    unknown: {
      on: {
        'office.seen': [
          { guard: 'isMine', target: 'leading' },
          { guard: 'isOthers', target: 'following' },
          { guard: 'isVacant', target: 'campaigning' },
        ],
      },
    },
    following: {
      entry: 'rememberHolder',
      on: {
        'office.seen': [
          { guard: 'isMine', target: 'leading' },
          { guard: 'isOthers', actions: 'rememberHolder' },
          { guard: 'isVacant', target: 'campaigning' },
        ],
      },
    },
    campaigning: {
      invoke: {
        id: 'campaign',
        src: 'campaign',
        input: ({ context }) => ({ self: context.self }),
        onDone: [{ guard: 'isElected', target: 'leading' }, { target: 'unknown' }],
        onError: 'unknown',
      },
    },
    leading: {
      entry: 'isSelf',
      on: {
        'office.seen': [
          { guard: 'isMine' },
          { guard: 'isOthers', target: 'following' },
          // Held no more, and not given up by this instance: its lease must be gone.
          { target: 'unknown' },
        ],
      },
    },
  },
})
