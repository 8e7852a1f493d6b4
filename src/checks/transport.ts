import { hostname, networkInterfaces } from 'node:os'
import type { Finding } from '../domain/finding.ts'
import { parseRedisUrl } from '../domain/redis-url.ts'
import type { Cluster } from '../mongo/cluster.ts'

/**
 * Finds connections whose data others on the network path could read or change. The data includes documents and
 * credentials.
 */

const shownMax = 3

export function clusterRisks({ name, hosts, encrypted, unverified }: Cluster): Finding[] {
  if (!encrypted) return unencrypted(name, hosts, `add tls=true to the connection string of ${name}`)
  if (unverified.length === 0) return []
  return [
    {
      severity: 'warning',
      name: 'UnverifiedConnection',
      message: `${name}: its connection string has ${unverified.join(' and ')}, so others on the network path can impersonate that cluster`,
      remedy: 'remove that, and set tlsCAFile to a file with the authority that issued the certificates',
    },
  ]
}

/** @param url the value of `--redis`; null if it was not given */
export function redisRisks(url: string | null): Finding[] {
  const endpoint = url === null ? null : parseRedisUrl(url)
  if (endpoint === null || 'problem' in endpoint || endpoint.tls) return []
  const host = endpoint.host.includes(':') ? `[${endpoint.host}]` : endpoint.host
  return unencrypted(
    'redis',
    [`${host}:${endpoint.port}`],
    'give a rediss:// address, with --redisTlsCAFile where needed',
  )
}

/** @param hosts each as host:port or as the path of a socket */
function unencrypted(name: string, hosts: readonly string[], remedy: string): Finding[] {
  const others = hosts.filter((host) => !isThisMachine(host)).sort()
  if (others.length === 0) return []
  const shown = others.slice(0, shownMax).join(', ')
  const more = others.length > shownMax ? ` and ${others.length - shownMax} more` : ''
  return [
    {
      severity: 'warning',
      name: 'UnencryptedConnection',
      message: `${name}: the connections to ${shown}${more} have no TLS, so others on the network path can read and change the data`,
      remedy,
    },
  ]
}

/** True if data sent to this address does not leave this machine or container. */
export function isThisMachine(address: string): boolean {
  if (address.startsWith('/')) return true
  const host = address
    .replace(/:\d+$/, '')
    .replace(/^\[|\]$/g, '')
    .replace(/^::ffff:(?=\d+\.)/i, '')
    .toLowerCase()
  if (host === 'localhost' || host === hostname().toLowerCase() || /^127(\.\d+){3}$/.test(host)) return true
  const own = Object.values(networkInterfaces()).flatMap((addresses) => addresses ?? [])
  return host === '::1' || own.some((one) => one.address.toLowerCase() === host)
}
