import * as v from 'valibot'
import { objectOf } from './strict-schema.ts'

/** The answer of `POST /api/v1/start`. Without warnings it is that of mongosync. */
export const startAnswerSchema = objectOf({
  success: v.literal(true),
  warnings: v.exactOptional(
    v.pipe(
      v.array(v.pipe(v.string(), v.description('A warning for the operator.'))),
      v.description('Warnings about the options of this start; absent if there is none.'),
    ),
  ),
})

export function renderStarted(warnings: string[]): v.InferOutput<typeof startAnswerSchema> {
  return { success: true, ...(warnings.length > 0 && { warnings }) }
}
