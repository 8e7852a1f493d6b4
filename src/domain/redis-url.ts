/** Where a Redis is, and as whom to talk to it. */
export interface RedisEndpoint {
  host: string
  port: number
  tls: boolean
  username: string | null
  password: string | null
  /** Number of the database. */
  database: number
}

/** Files for a connection with TLS, as PEM; without them the authorities that Node.js trusts count, and no certificate is shown. */
export interface RedisTls {
  ca?: string
  cert?: string
  key?: string
}

const shape = 'give redis://[[user]:password@]host[:port][/database], or rediss:// for TLS'

/**
 * Taken apart here and not by the client, which would take options from the URL that we decide. Returns the problem, in
 * words that never contain any of the URL, when it may not be used.
 */
export function parseRedisUrl(text: string): RedisEndpoint | { problem: string } {
  const url = URL.canParse(text) ? new URL(text) : null
  if (url === null || (url.protocol !== 'redis:' && url.protocol !== 'rediss:')) {
    return { problem: `not the address of a Redis; ${shape}` }
  }
  if (url.hostname === '') return { problem: `the host is missing; ${shape}` }
  if (url.search !== '' || url.hash !== '') {
    return { problem: `options in the URL are not supported; ${shape}, with ? and # in a password percent-encoded` }
  }
  const database = /^\/?(\d{0,9})$/.exec(url.pathname)?.[1]
  if (database === undefined) return { problem: `after the host may only come the number of a database; ${shape}` }
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
