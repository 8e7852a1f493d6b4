import { type Document, MongoTopologyClosedError } from 'mongodb'
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

/** Reads the facts about a cluster. Also sets `version`, `sharded`, `idsMayRepeat` and `before6` of `cluster`. */
export async function readFacts(cluster: Cluster): Promise<ClusterFacts> {
  // Only a replica set has a configuration. It is requested before the topology is known, which saves a round trip.
  const config = readConfig(cluster)
  const [hello, build, status] = await Promise.all([
    cluster.read('admin', { hello: 1 }),
    cluster.read('admin', { buildInfo: 1 }),
    cluster.read('admin', { connectionStatus: 1, showPrivileges: true }),
  ]).catch(async (error) => {
    // The first command connects the client. If that fails, the driver rejects the commands that wait for the connection
    // with an error that does not say why.
    if (error instanceof MongoTopologyClosedError) await config
    throw error
  })
  const topology = hello['msg'] === 'isdbgrid' ? 'sharded' : hello['setName'] ? 'replicaSet' : 'standalone'
  const version = build['version'] as string
  cluster.version = version
  cluster.sharded = topology === 'sharded'
  cluster.idsMayRepeat = cluster.sharded
  cluster.before6 = Number.parseInt(version, 10) < 6
  const [identity, shards] = await Promise.all([
    identityOf(cluster, topology, config),
    topology === 'sharded' ? listShards(cluster) : [],
  ])
  return {
    topology,
    identity,
    shards,
    privileges: (status['authInfo']?.authenticatedUserPrivileges ?? []) as Privilege[],
    version,
    major: Number.parseInt(version, 10),
    address: cluster.client.options.hosts[0]?.toString() ?? String(hello['me'] ?? ''),
    authenticated: (status['authInfo']?.authenticatedUsers as unknown[] | undefined)?.length !== 0,
  }
}

async function identityOf(
  cluster: Cluster,
  topology: ClusterFacts['topology'],
  config: Promise<Document | null>,
): Promise<string> {
  if (topology === 'standalone') return ''
  return topology === 'sharded' ? await clusterId(cluster) : replicaSetId(cluster, await config)
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

/**
 * Resolves with null if the user lacks the privilege. The reply is awaited only for a replica set, so the error of any
 * other topology is ignored.
 */
function readConfig(cluster: Cluster): Promise<Document | null> {
  const reading = cluster.read('admin', { replSetGetConfig: 1 }).catch((error) => {
    if (codeOf(error) === code.unauthorized) return null
    throw error
  })
  reading.catch(() => {})
  return reading
}

function replicaSetId(cluster: Cluster, reply: Document | null): string {
  if (!reply) return ''
  const id = reply['config']?.settings?.replicaSetId
  if (!id)
    throw new RefusedError(
      'UnsupportedTopology',
      `the replica set ${cluster.name} has no replicaSetId, by which tandem recognizes a cluster; initiate it with a current release`,
    )
  return String(id)
}
