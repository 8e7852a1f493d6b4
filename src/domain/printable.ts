/** Names may hold anything but NUL: line breaks would forge a line, escape sequences would reach the terminal. */
export function printable(text: string): string {
  return text.replace(
    /[\p{Cc}\u2028\u2029]/gu,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  )
}
