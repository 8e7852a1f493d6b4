import { RefusedError } from '../domain/errors.ts'

/** Refuses a call of `work` while another one runs: each call puts load on both clusters and may take minutes. */
export function oneAtATime<Given, Result>(
  name: string,
  work: (given: Given) => Promise<Result>,
): (given: Given) => Promise<Result> {
  let isRunning = false
  return async (given) => {
    if (isRunning) {
      throw new RefusedError(
        'TooManyRequests',
        `another ${name} is running on this instance, and only one runs at a time; send it again when that one has ` +
          'ended',
      )
    }
    isRunning = true
    try {
      return await work(given)
    } finally {
      isRunning = false
    }
  }
}
