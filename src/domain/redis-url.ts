/** The address of a Redis server and the credentials for it. */
export interface RedisEndpoint {
  host: string
  port: number
  tls: boolean
  username: string | null
  password: string | null
  /** Database number. */
  database: number
}

/**
 * PEM files for a TLS connection. Without them, tandem trusts the certificate authorities of Node.js and sends no
 * client certificate.
 */
export interface RedisTls {
  ca?: string
  cert?: string
  key?: string
}

const shape = 'give redis://[[user]:password@]host[:port][/database], or rediss:// for TLS'

/**
 * Parses a Redis URL. Rejects options in the URL, which the Redis client would accept, because tandem sets them itself.
 * For an invalid URL, returns a description of the problem that contains no part of the URL.
 */
export function parseRedisUrl(text: string): RedisEndpoint | { problem: string } {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || (url.protocol !== 'redis:' && url.protocol !== 'rediss:')) {
    return { problem: `not the address of a Redis server; ${shape}` }
  }
  if (url.hostname === '') return { problem: `the host is missing; ${shape}` }
  if (url.search !== '' || url.hash !== '') {
    return { problem: `options in the URL are not supported; ${shape}, with ? and # in a password percent-encoded` }
  }
  const database = /^\/?(\d{0,9})$/.exec(url.pathname)?.[1]
  if (database === undefined) return { problem: `only a database number may follow the host; ${shape}` }
  try {
    return {
      host: url.hostname.replace(/^\[|\]$/g, ''),
      port: url.port === '' ? 6379 : Number(url.port),
      tls: url.protocol === 'rediss:',
      username: decodeURIComponent(url.username) || null,
      password: decodeURIComponent(url.password) || null,
      database: Number(database),
    }
  } catch {
    return { problem: `% in a user name or password must be percent-encoded; ${shape}` }
  }
}
