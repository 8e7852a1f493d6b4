import type { Operation } from '../domain/work-meter.ts'
import type { RetryContext } from './retry.ts'

/** Runs one operation on a cluster, and measures it if the context has a meter. */
export function measured<T>({ meter }: RetryContext, operation: Operation, work: () => Promise<T>): Promise<T> {
  return meter ? meter.time(operation, work) : work()
}

/** Yields the batches of a read, and measures each of them if the context has a meter. */
export function measuredEach<T>(
  { meter }: RetryContext,
  operation: Operation,
  batches: AsyncIterable<T>,
): AsyncIterable<T> {
  return meter ? meter.timeEach(operation, batches) : batches
}
