import * as v from 'valibot'
import type { Finding } from '../domain/finding.ts'
import { redactUris } from '../domain/uri-rules.ts'
import { objectOf } from './strict-schema.ts'

/** The answer of `POST /api/v1/check`. */

const text = (meaning: string) => v.pipe(v.string(), v.description(meaning))

const findingSchema = objectOf({
  severity: v.pipe(
    v.picklist(['error', 'warning', 'info']),
    v.description('Only an error makes tandem refuse the start.'),
  ),
  name: text('Name of the finding; for an error, the name of the error with which start is refused.'),
  namespace: v.exactOptional(text('database.collection, if the finding is about one.')),
  message: text('What was found.'),
  remedy: text('What to do about it.'),
})

export const findingsAnswerSchema = objectOf({
  success: v.literal(true),
  findings: v.array(findingSchema),
})

/** Errors come first. Each severity keeps the order in which its findings were made. */
export function renderFindings(findings: readonly Finding[]): v.InferOutput<typeof findingsAnswerSchema> {
  const ordered = (['error', 'warning', 'info'] as const).flatMap((severity) =>
    findings.filter((finding) => finding.severity === severity),
  )
  return {
    success: true,
    findings: ordered.map(({ severity, name, namespace, message, remedy }) => ({
      severity,
      name,
      ...(namespace === undefined ? {} : { namespace }),
      message: redactUris(message),
      remedy,
    })),
  }
}
