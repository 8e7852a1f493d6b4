/** A promise that somebody else resolves. */
export interface Deferred<T> {
  promise: Promise<T>
  resolve: (value: T) => void
}

/** `Promise.withResolvers` without a way to reject; Node 20 does not have it. */
export function deferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => {}
  const promise = new Promise<T>((resolved) => {
    resolve = resolved
  })
  return { promise, resolve }
}
