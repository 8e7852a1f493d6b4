import * as v from 'valibot'
import { warningsOfMethod } from '../domain/compare-method.ts'
import type { StartConfiguration } from '../domain/start-request.ts'
import { objectOf } from './strict-schema.ts'

/** The answer of `POST /api/v1/start`. Most starts have no warnings, and then the answer is that of mongosync. */
export const startAnswerSchema = objectOf({
  success: v.literal(true),
  warnings: v.exactOptional(
    v.pipe(
      v.array(v.pipe(v.string(), v.description('A warning for the operator.'))),
      v.description('Warnings about the options of this start; absent if there is none.'),
    ),
  ),
})

export function renderStarted(configuration: StartConfiguration): v.InferOutput<typeof startAnswerSchema> {
  const warnings = warningsOfMethod(configuration)
  return { success: true, ...(warnings.length > 0 && { warnings }) }
}
