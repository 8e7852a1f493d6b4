import { ConnectionString } from 'mongodb-connection-string-url'

/** Options of the routers' connection string that do not apply to a shard, because they select routers or a replica set. */
const routerOptions = new Set(['replicaset', 'loadbalanced', 'directconnection', 'srvservicename', 'srvmaxhosts'])

/**
 * Returns the connection string of one shard, with the user and the other options of the routers' connection string.
 * Options that a DNS TXT record adds to a seed list, such as `authSource`, are not included. The caller must set them.
 * @param host the `host` of the shard in `config.shards`: setName/host:port,host:port
 */
export function shardUri(uri: string, host: string): string {
  const [setName = '', hosts = ''] = host.split('/')
  const shard = new ConnectionString(uri)
  const options = shard.searchParams
  for (const [option] of [...options]) if (routerOptions.has(option.toLowerCase())) options.delete(option)
  // A DNS seed list (mongodb+srv) implies TLS. The shard's connection string has no seed list, so it must enable TLS
  // itself.
  if (shard.isSRV && !options.has('tls') && !options.has('ssl')) options.set('tls', 'true')
  shard.protocol = 'mongodb:'
  shard.hosts = hosts.split(',')
  options.set('replicaSet', setName)
  return shard.toString()
}
