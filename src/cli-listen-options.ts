import { X509Certificate } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { isIP, isIPv4 } from 'node:net'
import { createSecureContext } from 'node:tls'
import { type Command, InvalidArgumentError } from 'commander'
import { openFileNotices, readToken } from './cli-token.ts'
import { nonEmpty } from './cli-values.ts'

/** Where an instance listens, and what keeps strangers out there. */
export interface ListenOptions {
  /** An IP address. */
  bind: string
  /** Certificate (with those between it and its authority) and key, as PEM; null: without TLS. */
  tls: { pem: string } | null
  /** What requests have to show; null: nothing. */
  token: string | null
}

export function addListenOptions(command: Command): Command {
  return command
    .option(
      '--bind <address>',
      'IP address to listen on; other than loopback only with --tlsCertificateKeyFile and --tokenFile',
      address,
      '127.0.0.1',
    )
    .option(
      '--tlsCertificateKeyFile <file>',
      'PEM file with certificate and private key: the API is then served by HTTPS',
      nonEmpty,
    )
    .option('--tokenFile <file>', 'file with a token that requests must show (Authorization: Bearer …)', nonEmpty)
}

/** Reads both files once. Ends the parsing with an error that names the option and the remedy. */
export function readListenOptions(command: Command): ListenOptions & { notices: string[] } {
  const { bind, tlsCertificateKeyFile, tokenFile } = command.opts()
  const missing = [
    ...(tlsCertificateKeyFile ? [] : ['--tlsCertificateKeyFile PEM']),
    ...(tokenFile ? [] : ['--tokenFile FILE']),
  ]
  if (!isLoopback(bind) && missing.length > 0) {
    command.error(
      `error: --bind: ${bind} can be reached from other machines; give ${missing.join(' and ')} as well, or bind 127.0.0.1`,
    )
  }
  const read = tokenFile ? readToken(tokenFile) : { token: null }
  if ('problem' in read) return command.error(`error: ${read.problem}`)
  const tls = tlsCertificateKeyFile ? readCertificate(command, tlsCertificateKeyFile) : null
  const notices = [tokenFile, tlsCertificateKeyFile].flatMap((file) => (file ? openFileNotices(file) : []))
  return { bind, tls, token: read.token, notices: [...notices, ...expired(tls)] }
}

/** Only this machine reaches it. */
export function isLoopback(address: string): boolean {
  return address === '::1' || (isIPv4(address) && address.startsWith('127.'))
}

function readCertificate(command: Command, file: string): { pem: string } {
  try {
    const pem = readFileSync(file, 'utf8')
    // Without both it throws; so it does when they do not belong together.
    createSecureContext({ cert: pem, key: pem })
    return { pem }
  } catch (error) {
    const { code, syscall } = error as NodeJS.ErrnoException
    if (syscall !== undefined) return command.error(`error: --tlsCertificateKeyFile: cannot read ${file}: ${code}`)
    return command.error(
      `error: --tlsCertificateKeyFile: ${file} must hold a certificate and its private key, not encrypted, both as PEM (${code})`,
    )
  }
}

function expired(tls: { pem: string } | null): string[] {
  if (!tls) return []
  const { validTo } = new X509Certificate(tls.pem)
  return Date.parse(validTo) < Date.now() ? [`--tlsCertificateKeyFile: the certificate expired on ${validTo}`] : []
}

function address(text: string): string {
  if (isIP(text) === 0) {
    throw new InvalidArgumentError('It must be an IP address: 127.0.0.1, another one of this machine, 0.0.0.0 or ::.')
  }
  return text
}
