import { assign, fromCallback, fromPromise, setup } from 'xstate'
import type { LeaseEvent } from './protocol.ts'

/**
 * Who may write to the destination and lead the others: one holder of one lease.
 *
 * resigned     Not asking for it: nothing is synced yet, or no longer.
 * campaigning  Asking until it is free: at once after a predecessor's death on this host, else when the lease expires.
 * leading      Renewing. A lease found in other hands ends the tenure; the instance stops and says so, because whoever
 *              holds it now may already have gone on from the stored position.
 */
export const electionMachine = setup({
  types: {
    context: {} as { failure: unknown },
    events: {} as LeaseEvent,
  },
  actors: {
    campaign: fromPromise<void>(() => {
      throw new Error('actor campaign is not provided')
    }),
    tenure: fromCallback<LeaseEvent>(() => {
      throw new Error('actor tenure is not provided')
    }),
  },
}).createMachine({
  id: 'election',
  context: { failure: null },
  initial: 'resigned',
  states: {
    resigned: { on: { 'lease.campaign': { target: 'campaigning', actions: assign({ failure: null }) } } },
    campaigning: {
      on: { 'lease.resign': 'resigned' },
      invoke: {
        id: 'campaign',
        src: 'campaign',
        onDone: 'leading',
        onError: { target: 'resigned', actions: assign({ failure: ({ event }) => event.error }) },
      },
    },
    leading: {
      invoke: { id: 'tenure', src: 'tenure' },
      on: { 'lease.lost': 'resigned', 'lease.resign': 'resigned' },
    },
  },
})
