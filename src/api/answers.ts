import type { Context } from 'hono'
import type { ContentfulStatusCode } from 'hono/utils/http-status'
import type { FailureAnswer } from './schemas.ts'

/** The response of every refusal. */
export function failure(
  context: Context,
  status: ContentfulStatusCode,
  error: FailureAnswer['error'],
  errorDescription: string,
): Response {
  const body: FailureAnswer = { success: false, error, errorDescription }
  return context.json(body, status)
}

/** @param allow the methods that the path accepts */
export function wrongMethod(context: Context, allow: string): Response {
  context.header('Allow', allow)
  return failure(context, 405, 'InvalidRequest', `method: ${context.req.path} accepts only ${allow}`)
}
