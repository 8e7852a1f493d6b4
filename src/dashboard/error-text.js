/**
 * The error of an answer, or the failure of an instance.
 * @typedef {{
 *   error?: string, errorDescription?: string, cluster?: string, codeName?: string, lastError?: string, lost?: string,
 *   docs?: string
 * }} ShownError
 */

/**
 * Returns the description of an error, and the details that the description does not contain.
 * @param {ShownError} error
 */
export function errorText({ errorDescription = '', cluster, codeName, lastError, lost }) {
  const details = [cluster, codeName, lastError].filter((detail) => detail && !errorDescription.includes(detail))
  if (lost === 'nothing' && !/\b(lost|kept)\b/.test(errorDescription)) details.push('nothing is lost')
  return details.length > 0 ? `${errorDescription} (${details.join('; ')})` : errorDescription
}
