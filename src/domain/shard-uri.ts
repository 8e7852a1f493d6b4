import { uriParts } from './uri-rules.ts'

/** Options that say how a router is found, or which replica set it is not. */
const ofTheRouter = new Set(['replicaset', 'loadbalanced', 'directconnection', 'srvservicename', 'srvmaxhosts'])

/**
 * The connection string of one shard: user and options of the one that leads to the routers.
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
    .filter((pair) => pair !== '' && !ofTheRouter.has((pair.split('=')[0] as string).toLowerCase()))
  // A seed list in the DNS means TLS; this is none any more.
  if (uri.startsWith('mongodb+srv:') && !options.some((pair) => /^(tls|ssl)=/i.test(pair))) options.push('tls=true')
  return `mongodb://${user}${hosts}/${path}?${[...options, `replicaSet=${encodeURIComponent(setName)}`].join('&')}`
}
