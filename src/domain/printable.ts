/**
 * Escapes control characters and line separators. Names of collections may contain any character except NUL. Without
 * escaping, a line break would forge a log line, and an escape sequence would reach the terminal.
 */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
