import { readFileSync } from 'node:fs'
import type { TokenPair } from '../api/tokens.ts'
import { openFileProblem } from './secret-file.ts'

/** Shorter tokens could be guessed by trial. */
const charactersMin = 32

/** Reads the token; null if none is given. A problem names the option, never the token itself. */
export function readToken({
  token,
  tokenFile,
}: {
  token?: string
  tokenFile?: string
}): { token: string | null } | { problem: string } {
  if (token && tokenFile) return { problem: '--token: give either --token or --tokenFile' }
  if (token) return checked(token, '--token: it')
  return tokenFile ? readFile('--tokenFile', tokenFile) : { token: null }
}

/** Options of an instance that contain a token, or the path of a token's file. */
export interface TokenOptions {
  token?: string
  tokenFile?: string
  readTokenFile?: string
}

/** Reads the tokens that requests may send; null: no token is required. */
export function readTokens(options: TokenOptions): { tokens: TokenPair | null } | { problem: string } {
  const control = readToken(options)
  if ('problem' in control) return control
  const { readTokenFile } = options
  if (!readTokenFile) return { tokens: control.token === null ? null : { control: control.token, read: null } }
  if (control.token === null) {
    return { problem: '--readTokenFile: commands need a separate token; give --tokenFile FILE as well' }
  }
  const read = readFile('--readTokenFile', readTokenFile)
  if ('problem' in read) return read
  if (read.token === control.token) {
    return { problem: `--readTokenFile: ${readTokenFile} holds the token for commands; give it another one` }
  }
  return { tokens: { control: control.token, read: read.token } }
}

function readFile(option: string, path: string): { token: string } | { problem: string } {
  try {
    const text = readFileSync(path, 'utf8').trim()
    const open = openFileProblem(path)
    return open === null ? checked(text, `${option}: ${path}`) : { problem: `${option}: ${open}` }
  } catch (error) {
    return { problem: `${option}: cannot read ${path}: ${(error as NodeJS.ErrnoException).code}` }
  }
}

function checked(token: string, where: string): { token: string } | { problem: string } {
  if (/^[\x21-\x7e]*$/.test(token) && token.length >= charactersMin) return { token }
  const remedy = 'make one with "openssl rand -hex 32"'
  return { problem: `${where} must hold ${charactersMin} or more printable characters; ${remedy}` }
}
