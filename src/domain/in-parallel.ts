/**
 * Calls `run` for each item, for at most `width` items at a time. After a failure, it starts no further item, waits for
 * the items in progress and throws.
 */
export async function inParallel<T>(width: number, items: T[], run: (item: T) => Promise<void>): Promise<void> {
  const queue = [...items]
  const worker = async (): Promise<void> => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
      await run(item).catch((error) => {
        queue.length = 0
        throw error
      })
    }
  }
  const results = await Promise.allSettled(Array.from({ length: width }, worker))
  const failed = results.find((result) => result.status === 'rejected')
  if (failed) throw failed.reason
}

/** Resolves when both promises have resolved. If one fails, rejects when both have ended. */
export async function both<A, B>(first: Promise<A>, second: Promise<B>): Promise<[A, B]> {
  await all([first, second])
  return [await first, await second]
}

/** Resolves when all promises have resolved. If one fails, rejects when all have ended. */
export async function all(promises: readonly (Promise<unknown> | null)[]): Promise<void> {
  const failed = (await Promise.allSettled(promises)).find(({ status }) => status === 'rejected')
  if (failed) throw (failed as PromiseRejectedResult).reason
}
