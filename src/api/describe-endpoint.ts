import { describeRoute, resolver } from 'hono-openapi'
import type { GenericSchema } from 'valibot'
import { failureSchema } from './schemas.ts'

/** Describes endpoints for the OpenAPI document. Bodies are parsed by read-body.ts. */

const answer = (description: string, schema: GenericSchema) => ({
  description,
  content: { 'application/json': { schema: resolver(schema) } },
})

/** Refusals that any request can receive, even one that needs no token. */
const openFailures = {
  403: answer('Foreign Host or Origin; for a command also Forbidden: the token is read-only.', failureSchema),
  500: answer('InternalError.', failureSchema),
}

/** Refusals that any request for a path that needs the token can receive. */
export const commonFailures = {
  ...openFailures,
  401: answer('Unauthorized: the token is missing or wrong.', failureSchema),
  429: answer(
    'TooManyRequests: too many requests without a valid token; for check also: another check is running.',
    failureSchema,
  ),
}

/** @param parameters the query parameters; all others are refused */
export function describeQuery(
  operationId: string,
  summary: string,
  schema: GenericSchema,
  parameters: Parameters<typeof describeRoute>[0]['parameters'] = undefined,
) {
  const refused = parameters && { 400: answer('InvalidRequest: the description names the parameter.', failureSchema) }
  return describeRoute({
    operationId,
    summary,
    ...(parameters && { parameters }),
    responses: { 200: answer('The answer.', schema), ...refused, ...commonFailures },
  })
}

/** Describes a query that is answered without a token. */
export function describeOpenQuery(operationId: string, summary: string, schema: GenericSchema) {
  return describeRoute({ operationId, summary, responses: { 200: answer('The answer.', schema), ...openFailures } })
}

export function describeCommand(
  operationId: string,
  summary: string,
  body: { schema: GenericSchema; required: boolean },
  success: GenericSchema,
) {
  return describeRoute({
    operationId,
    summary,
    requestBody: {
      description: 'JSON with any Content-Type, at most 1 MiB. An empty body means {}.',
      required: body.required,
      content: { 'application/json': { schema: resolver(body.schema) } },
    },
    responses: {
      200: answer('Accepted.', success),
      400: answer('InvalidRequest: the description names the field.', failureSchema),
      409: answer('WrongState; for commit also CannotCommit, for reverse also FormerSourceChanged.', failureSchema),
      413: answer('RequestTooLarge.', failureSchema),
      422: answer('Well formed, but these clusters or options do not allow it.', failureSchema),
      503: answer('ClusterUnreachable; for a command to all instances also NoAnswer.', failureSchema),
      ...commonFailures,
    },
  })
}
