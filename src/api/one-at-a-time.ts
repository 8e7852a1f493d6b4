import { RefusedError } from '../domain/errors.ts'

/** The same work, refused while a call of it is under way: each puts load on both clusters, and may take minutes. */
export function oneAtATime<Given, Result>(
  name: string,
  work: (given: Given) => Promise<Result>,
): (given: Given) => Promise<Result> {
  let underWay = false
  return async (given) => {
    if (underWay) {
      throw new RefusedError(
        'TooManyRequests',
        `another ${name} is under way on this instance, and one runs at a time; send it again when that has ended`,
      )
    }
    underWay = true
    try {
      return await work(given)
    } finally {
      underWay = false
    }
  }
}
