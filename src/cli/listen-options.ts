import { X509Certificate } from 'node:crypto'
import { isIP, isIPv4 } from 'node:net'
import { type Command, InvalidArgumentError } from 'commander'
import type { TokenPair } from '../api/tokens.ts'
import { readCertificate } from './certificate.ts'
import { readTokens, type TokenOptions } from './token.ts'
import { nonEmpty } from './values.ts'

/** Where an instance listens, and how it restricts access. */
export interface ListenOptions {
  /** An IP address. */
  bind: string
  /** Certificate chain and key as PEM; null: without TLS. */
  tls: { cert: string; key: string } | null
  /** Requests must send one of these tokens; null: no token is required. */
  tokens: TokenPair | null
  /** The options that gave the tokens. They are kept so that the token files can be read again. */
  tokenOptions: TokenOptions
}

export function addListenOptions(command: Command): Command {
  return command
    .option(
      '--bind <address>',
      'IP address to listen on; an address other than loopback requires --tlsCert and a token',
      address,
      '127.0.0.1',
    )
    .option('--tlsCert <file>', 'PEM file with the certificate: the API is then served over HTTPS', nonEmpty)
    .option('--tlsKey <file>', 'PEM file with its private key (default: the file of --tlsCert)', nonEmpty)
    .option('--token <token>', 'token that requests must send (Authorization: Bearer …)', nonEmpty)
    .option('--tokenFile <file>', 'file with that token, so that ps and the environment do not show it', nonEmpty)
    .option('--readTokenFile <file>', 'file with a second token, which allows only GET: for monitoring', nonEmpty)
}

/** Reads the files. Ends the parsing with an error that names the option and the remedy. */
export function readListenOptions(command: Command): ListenOptions & { notices: string[] } {
  const { bind, tlsCert, tlsKey, token, tokenFile, readTokenFile } = command.opts()
  const missing = [
    ...(tlsCert ? [] : ['--tlsCert FILE (with --tlsKey FILE)']),
    ...(token || tokenFile ? [] : ['--tokenFile FILE']),
  ]
  if (!isLoopback(bind) && missing.length > 0) {
    command.error(
      `error: --bind: ${bind} can be reached from other machines; add ${missing.join(' and ')}, or bind 127.0.0.1`,
    )
  }
  if (tlsKey && !tlsCert) command.error('error: --tlsKey: requires its certificate; add --tlsCert')
  const tokenOptions = { token, tokenFile, readTokenFile }
  const read = readTokens(tokenOptions)
  if ('problem' in read) return command.error(`error: ${read.problem}`)
  const tls = tlsCert ? readCertificate(command, '--tlsCert', tlsCert, tlsKey ?? tlsCert) : null
  return { bind, tls, tokens: read.tokens, tokenOptions, notices: expired(tls) }
}

/** True for addresses that only this machine can reach. */
export function isLoopback(address: string): boolean {
  return address === '::1' || (isIPv4(address) && address.startsWith('127.'))
}

function expired(tls: ListenOptions['tls']): string[] {
  if (!tls) return []
  const { validTo } = new X509Certificate(tls.cert)
  return Date.parse(validTo) < Date.now() ? [`--tlsCert: the certificate expired on ${validTo}`] : []
}

function address(text: string): string {
  if (isIP(text) === 0) {
    throw new InvalidArgumentError('It must be an IP address: 127.0.0.1, another address of this host, 0.0.0.0 or ::.')
  }
  return text
}
