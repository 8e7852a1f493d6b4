import { setTimeout as sleep } from 'node:timers/promises'
import { MongoError, MongoNetworkError, MongoServerSelectionError, MongoWriteConcernError } from 'mongodb'
import { errorText } from '../domain/error-text.ts'

/** How long a cleanup repeats steps that fail transiently. A cluster usually elects a primary within this time. */
const retryLimitMS = 30_000
const retryPauseMS = 500

/** Codes of errors of a server that is no primary, steps down, stops or does not reach another server in time. */
const transientCodes = new Set([6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436])

/** The steps of a cleanup. A step that fails is described with its remedy, and does not prevent the other steps. */
export class CleanUp {
  readonly problems: string[] = []
  readonly #deadline: number

  /** @param retryMS applies to all steps together, so that a cluster that stays away delays the cleanup only once */
  constructor(retryMS = retryLimitMS) {
    this.#deadline = performance.now() + retryMS
  }

  /** Runs a step, and repeats it after transient errors. Returns null if it failed. */
  async step<T>(what: string, remedy: string, run: () => Promise<T>): Promise<T | null> {
    for (;;) {
      try {
        return await run()
      } catch (error) {
        if (isTransient(error) && performance.now() < this.#deadline) {
          await sleep(retryPauseMS)
          continue
        }
        this.problems.push(`${what} failed: ${errorText(error)}; ${remedy}`)
        return null
      }
    }
  }
}

/** Every step can be repeated, also if the server has carried it out. */
function isTransient(error: unknown): boolean {
  if (error instanceof MongoNetworkError || error instanceof MongoServerSelectionError) return true
  return (
    error instanceof MongoWriteConcernError || (error instanceof MongoError && transientCodes.has(Number(error.code)))
  )
}
