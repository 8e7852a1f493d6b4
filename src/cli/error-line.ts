/**
 * Returns one line about an error of an instance: the name and description of the error, the details that the description
 * does not contain, and the page that explains the error.
 * @param error a failure of `progress`, or a refusal
 */
export function errorLine(error: Record<string, unknown>): string {
  const { cluster, codeName, lastError, lost, docs } = error
  const description = text(error['errorDescription'])
  const isNew = (detail: unknown): detail is string => typeof detail === 'string' && !description.includes(detail)
  const details = [
    ...[cluster, codeName, lastError].filter(isNew),
    ...(lost === 'nothing' && !/\b(lost|kept)\b/.test(description) ? ['nothing is lost'] : []),
    ...(typeof docs === 'string' ? [`see ${docs}`] : []),
  ]
  return `${text(error['error'])}: ${description}${details.length > 0 ? ` (${details.join('; ')})` : ''}`
}

function text(value: unknown): string {
  return typeof value === 'string' ? value : ''
}
