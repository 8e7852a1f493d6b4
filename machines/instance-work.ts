import { type InstanceContext, type WithConfiguration, withConfiguration } from './instance-context.ts'

/** The work that the instance machine invokes in several states. */

/**
 * Delay before the next attempt to take the lease, ms; it equals the duration of a lease. One attempt already retries
 * for 30 minutes with increasing delays. An attempt ends earlier only with an error that is not transient.
 */
export const holdAgainMS = 10_000

export const failing = { target: '#instance.failed', actions: 'rememberFailure' } as const

/**
 * Runs as long as a commit can still be aborted. It aborts the commit for all instances when the commit's time limit
 * has passed.
 */
export const commitDeadline = {
  id: 'commitDeadline',
  src: 'commitDeadline',
  input: ({ context }: { context: InstanceContext }) => context,
  onError: failing,
} as const

/** Input of work that needs the sync's configuration. */
export const configured = ({ context }: { context: InstanceContext }): WithConfiguration => withConfiguration(context)

/** Reports the sync's state and does the coordinator's work for that state. */
export const syncFollower = {
  id: 'syncFollower',
  src: 'syncFollower',
  input: ({ context }: { context: InstanceContext }) => ({ ...withConfiguration(context), watching: false }),
  onError: failing,
} as const

/**
 * Undoes an aborted commit even when all instances are paused or have failed. If the commit has blocked user writes on
 * the source, the block lasts until the commit is undone. This actor also aborts a commit whose time limit has passed,
 * and gives this instance's partitions back before collections are converged again.
 */
export const undo = {
  id: 'undo',
  src: 'undo',
  input: configured,
} as const

/** Takes the lease again in states in which nothing else does. */
export const hold = { id: 'hold', src: 'hold', input: configured } as const
