import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import { errorDetails } from '../domain/error-details.ts'
import type { FailureAnswer } from './schemas.ts'

/**
 * Returns the response to a request that is refused or fails.
 * @param reason the error behind the refusal; the response names its cluster and its cause
 */
export function failure(
  context: Context,
  status: ContentfulStatusCode,
  error: FailureAnswer['error'],
  errorDescription: string,
  reason?: unknown,
): Response {
  return context.json(failureBody(error, errorDescription, reason), status)
}

export function failureBody(error: FailureAnswer['error'], errorDescription: string, reason?: unknown): FailureAnswer {
  return { success: false, error, errorDescription, ...errorDetails(error, reason) }
}

/** @param allow the methods that the path accepts */
export function wrongMethod(context: Context, allow: string): Response {
  context.header('Allow', allow)
  return failure(context, 405, 'InvalidRequest', `method: ${context.req.path} accepts only ${allow}`)
}
