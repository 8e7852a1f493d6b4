import { readFileSync, statSync } from 'node:fs'

/** Shorter ones could be guessed by trying. */
const charactersMin = 32
const othersMayRead = 0o044

/** The token in a file, or what is wrong with it; never the token itself. */
export function readToken(path: string): { token: string } | { problem: string } {
  let text: string
  try {
    text = readFileSync(path, 'utf8')
  } catch (error) {
    return { problem: `--tokenFile: cannot read ${path}: ${(error as NodeJS.ErrnoException).code}` }
  }
  const token = text.trim()
  if (!/^[\x21-\x7e]*$/.test(token) || token.length < charactersMin) {
    const remedy = 'make one with "openssl rand -hex 32"'
    return { problem: `--tokenFile: ${path} must hold ${charactersMin} or more printable characters; ${remedy}` }
  }
  return { token }
}

/** A notice for a file of secrets that other users of the machine can read. */
export function openFileNotices(path: string): string[] {
  const isOpen = (statSync(path).mode & othersMayRead) !== 0
  return isOpen ? [`${path} can be read by other users of this machine; chmod 600 keeps them out`] : []
}
