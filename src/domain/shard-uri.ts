import { ConnectionString } from 'mongodb-connection-string-url'

/** Options that select routers, or that name another replica set. */
const routerOptions = new Set(['replicaset', 'loadbalanced', 'directconnection', 'srvservicename', 'srvmaxhosts'])

/**
 * The connection string of one shard, with the user and the options of the routers' connection string.
 * @param host as in `config.shards`: setName/host:port,host:port
 */
export function shardUri(uri: string, host: string): string {
  const [setName = '', hosts = ''] = host.split('/')
  const shard = new ConnectionString(uri)
  const options = shard.searchParams
  for (const [option] of [...options]) if (routerOptions.has(option.toLowerCase())) options.delete(option)
  // A DNS seed list (mongodb+srv) implies TLS; the shard's string has no seed list, so it names TLS.
  if (shard.isSRV && !options.has('tls') && !options.has('ssl')) options.set('tls', 'true')
  shard.protocol = 'mongodb:'
  shard.hosts = hosts.split(',')
  options.set('replicaSet', setName)
  return shard.toString()
}
