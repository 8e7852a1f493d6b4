/** Resolves when the signal is aborted. */
export function aborted(signal: AbortSignal): Promise<void> {
  if (signal.aborted) return Promise.resolve()
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }))
}

/** A promise that other code resolves. */
export interface Deferred<T> {
  promise: Promise<T>
  resolve: (value: T) => void
}

/** `Promise.withResolvers` without `reject`. Node 20 does not have `Promise.withResolvers`. */
export function deferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((resolved) => {
    resolve = resolved
  })
  return { promise, resolve }
}
