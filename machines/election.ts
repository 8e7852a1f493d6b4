import { assign, fromPromise, setup } from 'xstate'
import type { ElectionEvent } from './protocol.ts'

export interface CampaignInput {
  /** mongosyncID of the candidate. */
  self: string
}

/**
 * The election of the coordinator. The metadata database stores the coordinator role, which one instance holds at a
 * time. Each term has its own epoch.
 *
 * unknown      This instance has not read the stored role since it started, since its campaign failed, or since its term
 *              ended. It also stays here while the role is vacant and this instance may not claim it. `holder` is the
 *              last known holder, or null.
 * following    Another instance holds the role. This instance also stays here while the role is vacant and this instance
 *              may not claim it.
 * campaigning  The role is vacant, and this instance claims it by compare-and-set. One of several candidates wins.
 * leading      This instance holds the role. It leads as long as every read confirms this, its lease lasts, and it has
 *              not begun to give the role up. `lease.lost` reports both the loss of the lease and the release of the
 *              role, because either ends the term.
 *
 * The machine relies only on what was read from the metadata database and never assumes that it leads. A campaign whose
 * reply was lost ends in `unknown`, and the next read shows which instance won.
 */
export const electionMachine = setup({
  types: {
    context: {} as { self: string; holder: string | null },
    events: {} as ElectionEvent,
    input: {} as { self: string },
  },
  actors: {
    /** Resolves with true when this instance has won the role, and with false when another instance won it. */
    campaign: fromPromise<boolean, CampaignInput>(() => {
      throw new Error('actor campaign is not provided')
    }),
  },
  guards: {
    isMine: ({ event }) => event.type === 'coordinator.observed' && event.mine,
    isOthers: ({ event }) => event.type === 'coordinator.observed' && !event.mine && !event.vacant,
    isElected: ({ event }) => (event as unknown as { output: boolean }).output,
    isVacant: ({ event }) => event.type === 'coordinator.observed' && event.vacant && event.eligible,
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
          { guard: 'isVacant', target: 'campaigning' },
        ],
      },
    },
    following: {
      entry: 'rememberHolder',
      on: {
        'coordinator.observed': [
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
