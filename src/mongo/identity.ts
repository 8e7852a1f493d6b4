import { RefusedError } from '../domain/errors.ts'
import type { Cluster } from './cluster.ts'
import { listShards } from './config-database.ts'
import { code, codeOf } from './errors.ts'

export interface ClusterFacts {
  topology: 'replicaSet' | 'sharded' | 'standalone'
  /**
   * Does not change when hosts are renamed or moved. A different cluster at the same address has a different identity.
   * Empty for a standalone server, and when the user lacks the privilege to read it.
   */
  identity: string
  /** The `_id`s of the shards. Empty for a replica set. */
  shards: string[]
  version: string
  major: number
  /** The first host of the connection string (a member or a mongos) as host:port, for directionMapping. */
  address: string
  authenticated: boolean
  /** Privileges of the user. Empty without authentication. */
  privileges: Privilege[]
}

/**
 * A privilege as in the reply of connectionStatus (https://www.mongodb.com/docs/manual/reference/resource-document/).
 */
export interface Privilege {
  resource: { db?: string; collection?: string; cluster?: boolean; anyResource?: boolean }
  actions: string[]
}

/** Reads topology, identity, version and privileges. Also sets what `cluster` stores of them. */
export async function readFacts(cluster: Cluster): Promise<ClusterFacts> {
  const hello = await cluster.read('admin', { hello: 1 })
  const build = await cluster.read('admin', { buildInfo: 1 })
  const status = await cluster.read('admin', { connectionStatus: 1, showPrivileges: true })
  const topology = hello['msg'] === 'isdbgrid' ? 'sharded' : hello['setName'] ? 'replicaSet' : 'standalone'
  const version = build['version'] as string
  cluster.version = version
  cluster.sharded = topology === 'sharded'
  cluster.idsMayRepeat = cluster.sharded
  cluster.before6 = Number.parseInt(version, 10) < 6
  return {
    topology,
    identity: await identityOf(cluster, topology),
    shards: topology === 'sharded' ? await listShards(cluster) : [],
    privileges: (status['authInfo']?.authenticatedUserPrivileges ?? []) as Privilege[],
    version,
    major: Number.parseInt(version, 10),
    address: cluster.client.options.hosts[0]?.toString() ?? String(hello['me'] ?? ''),
    authenticated: (status['authInfo']?.authenticatedUsers as unknown[] | undefined)?.length !== 0,
  }
}

async function identityOf(cluster: Cluster, topology: ClusterFacts['topology']): Promise<string> {
  if (topology === 'standalone') return ''
  return topology === 'sharded' ? await clusterId(cluster) : await replicaSetId(cluster)
}

/** The id is created with the cluster. The config servers store it in the only document of `config.version`. */
async function clusterId(cluster: Cluster): Promise<string> {
  const reply = await cluster
    .read('config', { find: 'version', limit: 1, readConcern: { level: 'majority' } })
    .catch((error) => {
      if (codeOf(error) === code.unauthorized) return null
      throw error
    })
  const id = reply?.['cursor'].firstBatch[0]?.clusterId
  return id ? String(id) : ''
}

async function replicaSetId(cluster: Cluster): Promise<string> {
  const reply = await cluster.read('admin', { replSetGetConfig: 1 }).catch((error) => {
    if (codeOf(error) === code.unauthorized) return null
    throw error
  })
  if (!reply) return ''
  const id = reply['config']?.settings?.replicaSetId
  if (!id)
    throw new RefusedError(
      'UnsupportedTopology',
      `the replica set ${cluster.name} has no replicaSetId, by which tandem recognizes a cluster; initiate it with a current release`,
    )
  return String(id)
}
