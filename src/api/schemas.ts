import * as v from 'valibot'
import { refusalNames } from '../domain/errors.ts'
import { objectOf } from './strict-schema.ts'

/**
 * Bodies that several endpoints share, and the answer of `GET /healthz`. The bodies of start and progress are in
 * start-schema.ts and progress-schema.ts.
 */

/** pause, resume, abort, reverse and repair accept `{}` or an empty body. */
export const emptyBodySchema = objectOf({})

export const successSchema = objectOf({ success: v.literal(true) })

export const healthSchema = objectOf({
  success: v.literal(true),
  version: v.pipe(v.string(), v.description('Version of tandem.')),
})

/** Details of an error, as `errorDetails` derives them. */
export const detailEntries = {
  cluster: v.exactOptional(v.pipe(v.string(), v.description('cluster0 or cluster1, if the error came from one.'))),
  codeName: v.exactOptional(v.pipe(v.string(), v.description("The server's name of the error code."))),
  lastError: v.exactOptional(v.pipe(v.string(), v.description('The last error of the driver or the server.'))),
  lost: v.exactOptional(
    v.pipe(v.literal('nothing'), v.description('nothing: no data is lost; absent if that is unknown.')),
  ),
  docs: v.exactOptional(
    v.pipe(
      v.string(),
      v.description(
        'Path of a documentation page in the package, with the anchor of the heading that explains the error.',
      ),
    ),
  ),
}

export const failureSchema = objectOf({
  success: v.literal(false),
  error: v.pipe(v.picklist(refusalNames), v.description('Name of the error.')),
  errorDescription: v.pipe(v.string(), v.description('What was refused, which field is wrong, and the remedy.')),
  ...detailEntries,
})

export type FailureAnswer = v.InferOutput<typeof failureSchema>
