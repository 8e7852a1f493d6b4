import { type Failure, toFailure } from '../src/domain/errors.ts'
import type { WorkerReport } from './protocol.ts'

/**
 * Ends a worker. Leaving a state stops its actors but does not await their work. The actor `close` awaits that work,
 * and resolves with the failure to report, or with null when the work was only stopped.
 * @param ended the state that follows when there is no failure
 * @param failed the state that follows a failure
 */
export function closing<Ended extends string, Failed extends string>(ended: Ended, failed: Failed) {
  return {
    id: 'close',
    src: 'close',
    input: ({ context }: { context: { error: unknown } }) => ({ error: context.error }),
    onDone: [{ guard: 'hasFailed', target: failed, actions: 'reportFailed' }, { target: ended }],
    onError: { target: failed, actions: 'reportFailed' },
  } as const
}

/** True if `close` has resolved with a failure. */
export function hasFailed({ event }: { event: object }): boolean {
  return (event as { output: Failure | null }).output !== null
}

/** The report of a failure that ended a worker. */
export function failureReport({ event }: { event: object }): WorkerReport {
  const { output, error } = event as { output?: Failure; error?: unknown }
  return { type: 'worker.failed', failure: output ?? toFailure(error) }
}

/** The first error, which ended the worker. Later errors are only its consequences. */
export function firstError({ context, event }: { context: { error: unknown }; event: object }): unknown {
  return context.error ?? (event as { error: unknown }).error
}
