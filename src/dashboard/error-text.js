/**
 * Error of an answer, or failure of an instance.
 * @typedef {{
 *   error?: string, errorDescription?: string, cluster?: string, codeName?: string, lastError?: string, lost?: string,
 *   docs?: string
 * }} ShownError
 */

/**
 * The description of an error, the details that it does not contain, and the documentation page that explains the error.
 * @param {ShownError} error
 */
export function errorText({ errorDescription = '', cluster, codeName, lastError, lost, docs }) {
  const details = [cluster, codeName, lastError].filter((detail) => detail && !errorDescription.includes(detail))
  if (lost === 'nothing' && !/\b(lost|kept)\b/.test(errorDescription)) details.push('nothing is lost')
  if (docs) details.push(`see ${docs}`)
  return details.length > 0 ? `${errorDescription} (${details.join('; ')})` : errorDescription
}
