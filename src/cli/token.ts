import { readFileSync, statSync } from 'node:fs'

/** Shorter ones could be guessed by trying. */
const charactersMin = 32
const othersMayRead = 0o044

/** Null: none is given. What is wrong with one is told, never the token itself. */
export function readToken({
  token,
  tokenFile,
}: {
  token?: string
  tokenFile?: string
}): { token: string | null } | { problem: string } {
  if (token && tokenFile) return { problem: '--token: give either --token or --tokenFile' }
  if (token) return checked(token, '--token: it')
  if (!tokenFile) return { token: null }
  try {
    return checked(readFileSync(tokenFile, 'utf8').trim(), `--tokenFile: ${tokenFile}`)
  } catch (error) {
    return { problem: `--tokenFile: cannot read ${tokenFile}: ${(error as NodeJS.ErrnoException).code}` }
  }
}

function checked(token: string, where: string): { token: string } | { problem: string } {
  if (/^[\x21-\x7e]*$/.test(token) && token.length >= charactersMin) return { token }
  const remedy = 'make one with "openssl rand -hex 32"'
  return { problem: `${where} must hold ${charactersMin} or more printable characters; ${remedy}` }
}

/** A notice for a file of secrets that other users of the machine can read. */
export function openFileNotices(path: string): string[] {
  const isOpen = (statSync(path).mode & othersMayRead) !== 0
  return isOpen ? [`${path} can be read by other users of this machine; chmod 600 keeps them out`] : []
}
