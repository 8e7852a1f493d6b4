import { X509Certificate } from 'node:crypto'
import type { Command } from 'commander'
import { parseRedisUrl, type RedisTls } from '../domain/redis-url.ts'
import { readCertificate, readPem } from './certificate.ts'
import { nonEmpty } from './values.ts'

/** Adds the options for a Redis server to a command. */
export function addRedisOptions(command: Command): Command {
  return command
    .option(
      '--redis <url>',
      'URL of a Redis server for heartbeats; with it, instances detect a lost instance sooner (or environment variable TANDEM_REDIS)',
    )
    .option('--redisTlsCAFile <file>', 'PEM file of the authorities to trust for a rediss:// address', nonEmpty)
    .option('--redisTlsCert <file>', 'PEM file with the client certificate for this Redis', nonEmpty)
    .option(
      '--redisTlsKey <file>',
      'PEM file with the private key of the client certificate (default: the file of --redisTlsCert)',
      nonEmpty,
    )
}

/**
 * Returns the Redis URL of the option or, without it, of the environment variable; null if neither is given. If the URL
 * is not valid, ends the parsing with an error that does not contain the URL, because it may contain a password.
 */
export function readRedis(
  command: Command,
  options: { redis?: string },
  env: Readonly<Record<string, string | undefined>>,
): string | null {
  const url = options.redis ?? env['TANDEM_REDIS'] ?? ''
  if (url === '') {
    if (options.redis !== undefined) command.error('error: redis: must not be empty; give a URL or leave --redis out')
    return null
  }
  const parsed = parseRedisUrl(url)
  if ('problem' in parsed) command.error(`error: redis: ${parsed.problem} (--redis or TANDEM_REDIS)`)
  return url
}

/**
 * Reads the PEM files that the options name. Without these options, the result is empty. If an option does not fit or a
 * file is not valid, ends the parsing with an error that names the option and the remedy.
 * @param url the valid result of `readRedis`
 */
export function readRedisTls(command: Command, url: string | null): RedisTls {
  const { redisTlsCAFile: caFile, redisTlsCert: certFile, redisTlsKey: keyFile } = command.opts()
  const [given] = Object.entries({ redisTlsCAFile: caFile, redisTlsCert: certFile, redisTlsKey: keyFile })
    .filter(([, file]) => file)
    .map(([name]) => name)
  const endpoint = url === null ? null : parseRedisUrl(url)
  if (given && !(endpoint && 'tls' in endpoint && endpoint.tls)) {
    command.error(`error: --${given}: is only for a Redis with TLS; set --redis rediss://host:port`)
  }
  if (keyFile && !certFile) command.error('error: --redisTlsKey: requires its certificate; add --redisTlsCert')
  return {
    ...(caFile ? { ca: readAuthority(command, caFile) } : {}),
    ...(certFile ? readCertificate(command, '--redisTlsCert', certFile, keyFile ?? certFile) : {}),
  }
}

/**
 * Reads the file of the authorities. Refuses a file without a certificate, because Node.js would then trust no authority,
 * and every connection would fail later. Checks only the first certificate of the file.
 */
function readAuthority(command: Command, file: string): string {
  const pem = readPem(command, '--redisTlsCAFile', file)
  try {
    new X509Certificate(pem)
    return pem
  } catch {
    return command.error(`error: --redisTlsCAFile: ${file} contains no certificate; it must contain one or more as PEM`)
  }
}
