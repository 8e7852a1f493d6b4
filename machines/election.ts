import { assign, fromPromise, setup } from 'xstate'
import type { ElectionEvent } from './protocol.ts'

export interface CampaignInput {
  /** mongosyncID of the candidate. */
  self: string
}

/**
 * The election of the coordinator. The metadata database stores which instance holds the coordinator role. At most one
 * instance holds it at a time, and each term has its own epoch.
 *
 * unknown      This instance has not read the stored role since it started, since it lost a campaign or did not learn
 *              the result, or since `lease.lost`; or it was leading and has read that the role is vacant. It also stays
 *              here while the role is vacant and this instance may not claim it. `holder` is the last known holder;
 *              null if none is known.
 * following    Another instance holds the role. This instance also stays here while the role is vacant and this instance
 *              may not claim it.
 * campaigning  The role is vacant, and this instance claims it by compare-and-set. At most one candidate wins.
 * leading      This instance holds the role. It leads as long as every read confirms this, it holds its lease, and it has
 *              not begun to give the role up or to stop.
 *
 * `lease.lost` ends any state. It reports the loss of the lease, and also that this instance gives the role up or stops,
 * because each of these ends the term.
 *
 * This instance leads only after a reply from the metadata database has confirmed that it holds the role. A campaign
 * whose reply was lost ends in `unknown`, and the next read shows which instance won.
 */
export const electionMachine = setup({
  types: {
    context: {} as { self: string; holder: string | null },
    events: {} as ElectionEvent,
    input: {} as { self: string },
  },
  actors: {
    /**
     * Claims the role. Resolves with true when this instance holds it, and with false when the stored role has changed
     * since it was read, for example because another instance has won.
     */
    campaign: fromPromise<boolean, CampaignInput>(() => {
      throw new Error('actor campaign is not provided')
    }),
  },
  guards: {
    isMine: ({ event }) => event.type === 'coordinator.observed' && event.mine,
    isOthers: ({ event }) => event.type === 'coordinator.observed' && !event.mine && !event.vacant,
    isElected: ({ event }) => (event as unknown as { output: boolean }).output,
    mayClaim: ({ event }) => event.type === 'coordinator.observed' && event.vacant && event.eligible,
  },
  actions: {
    rememberHolder: assign({
      holder: ({ event, context }) =>
        event.type === 'coordinator.observed' && !event.vacant ? event.holder : context.holder,
    }),
    rememberSelf: assign({ holder: ({ context }) => context.self }),
  },
}).createMachine({
  id: 'election',
  context: ({ input }) => ({ self: input.self, holder: null }),
  initial: 'unknown',
  on: { 'lease.lost': '.unknown' },
  states: {
    unknown: {
      on: {
        'coordinator.observed': [
          { guard: 'isMine', target: 'leading' },
          { guard: 'isOthers', target: 'following' },
          { guard: 'mayClaim', target: 'campaigning' },
        ],
      },
    },
    following: {
      entry: 'rememberHolder',
      on: {
        'coordinator.observed': [
          { guard: 'isMine', target: 'leading' },
          { guard: 'isOthers', actions: 'rememberHolder' },
          { guard: 'mayClaim', target: 'campaigning' },
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
      entry: 'rememberSelf',
      on: {
        'coordinator.observed': [
          { guard: 'isMine' },
          { guard: 'isOthers', target: 'following' },
          // No instance holds the role now, and this instance did not give it up, so it must have lost its lease.
          { target: 'unknown' },
        ],
      },
    },
  },
})
