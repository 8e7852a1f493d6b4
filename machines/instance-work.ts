import { type InstanceContext, type WithConfiguration, withConfiguration } from './instance-context.ts'

/** The work that the instance machine invokes in several states. */

/**
 * Delay before the next attempt to take the lease, ms: as long as a lease lasts. One attempt already retries for 30
 * minutes with increasing delays, and ends at once only with an error that does not pass by itself.
 */
export const holdAgainMS = 10_000

export const failing = { target: '#instance.failed', actions: 'rememberFailure' } as const

/**
 * Runs in every part of a commit that can still be aborted, and aborts the commit for all instances when its time is
 * over.
 */
export const commitDeadline = {
  id: 'commitDeadline',
  src: 'commitDeadline',
  input: ({ context }: { context: InstanceContext }) => context,
  onError: failing,
} as const

/** Input of work that needs the sync's configuration. */
export const configured = ({ context }: { context: InstanceContext }): WithConfiguration => withConfiguration(context)

/** Reports the state of the sync as a whole and does the coordinator's work in it. */
export const syncFollower = {
  id: 'syncFollower',
  src: 'syncFollower',
  input: ({ context }: { context: InstanceContext }) => ({ ...withConfiguration(context), watching: false }),
  onError: failing,
} as const

/**
 * Undoes an aborted commit even when all instances rest, because users cannot write on the source until it is undone.
 */
export const undo = {
  id: 'undo',
  src: 'undo',
  input: configured,
} as const

/** Takes the lease again in states in which nothing else does. */
export const hold = { id: 'hold', src: 'hold', input: configured } as const
