import { readFileSync } from 'node:fs'
import type { Command } from 'commander'
import { isLoopback } from './listen-options.ts'
import type { Environment } from './settings.ts'
import { readToken } from './token.ts'

/** The token that a client sends, and the certificate authorities that it trusts. */
export interface Access {
  token: string | null
  /** Certificates of trusted authorities, as PEM; null: those of Node.js. */
  ca: string | null
}

export function addAccessOptions(command: Command): Command {
  return command
    .option('--token <token>', 'the token that the instances require (or TANDEM_TOKEN)')
    .option(
      '--tokenFile <file>',
      'file with that token, so that ps and the environment do not show it (or TANDEM_TOKEN_FILE)',
    )
    .option(
      '--tlsCAFile <file>',
      'PEM file of the certificate authorities to trust for https addresses (or TANDEM_TLS_CA_FILE)',
    )
}

/**
 * Returns undefined if neither a token nor a CA file is given. Ends the parsing with an error if a file cannot be used, or
 * if a token would be sent over an unencrypted connection to another machine.
 */
export function readAccess(command: Command, urls: readonly string[], env: Environment): Access | undefined {
  const options = command.opts()
  const isGiven = options['token'] !== undefined || options['tokenFile'] !== undefined
  const read = readToken(
    isGiven ? options : { token: env['TANDEM_TOKEN'] ?? '', tokenFile: env['TANDEM_TOKEN_FILE'] ?? '' },
  )
  const caFile: string = options['tlsCAFile'] ?? env['TANDEM_TLS_CA_FILE'] ?? ''
  if ('problem' in read) return command.error(`error: ${read.problem}`)
  if (read.token === null && caFile === '') return undefined
  const plain = urls.find((url) => read.token !== null && !isConfidential(url))
  if (plain)
    command.error(`error: --url: the token would be readable on the way to ${plain}; give its https:// address`)
  return { token: read.token, ca: caFile === '' ? null : readAuthorities(command, caFile) }
}

function readAuthorities(command: Command, path: string): string {
  try {
    return readFileSync(path, 'utf8')
  } catch (error) {
    return command.error(`error: --tlsCAFile: cannot read ${path}: ${(error as NodeJS.ErrnoException).code}`)
  }
}

/** True if the connection is encrypted or stays on this machine. */
function isConfidential(url: string): boolean {
  const { protocol, hostname } = new URL(url)
  return protocol === 'https:' || hostname === 'localhost' || isLoopback(hostname.replace(/^\[|\]$/g, ''))
}
