import { uriParts } from './uri-rules.ts'

/** Options for finding a router, or for another replica set. */
const routerOptions = new Set(['replicaset', 'loadbalanced', 'directconnection', 'srvservicename', 'srvmaxhosts'])

/**
 * The connection string of one shard, with the user and options of the string for the routers.
 * @param host as in `config.shards`: setName/host:port,host:port
 */
export function shardUri(uri: string, host: string): string {
  const [setName = '', hosts = ''] = host.split('/')
  const rest = uriParts.exec(uri)?.groups?.['rest'] ?? ''
  const authority = uri.slice(uri.indexOf('://') + 3, uri.length - rest.length)
  const user = authority.slice(0, authority.indexOf('@') + 1)
  const [path = '', query = ''] = rest.replace(/^\/?/, '').split(/\?(.*)/s)
  const options = query
    .split('&')
    .filter((pair) => pair !== '' && !routerOptions.has((pair.split('=')[0] as string).toLowerCase()))
  // A DNS seed list (mongodb+srv) implies TLS; the shard's string has no seed list, so it names TLS.
  if (uri.startsWith('mongodb+srv:') && !options.some((pair) => /^(tls|ssl)=/i.test(pair))) options.push('tls=true')
  return `mongodb://${user}${hosts}/${path}?${[...options, `replicaSet=${encodeURIComponent(setName)}`].join('&')}`
}
