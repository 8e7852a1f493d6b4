import { RefusedError } from '../domain/errors.ts'
import type { Cluster } from './cluster.ts'

export interface ClusterFacts {
  topology: 'replicaSet' | 'sharded' | 'standalone'
  /** Stays the same when hosts are renamed or moved; another cluster on the same address has another. */
  identity: string
  version: string
  major: number
  /** host:port of one member, for directionMapping. */
  address: string
  authenticated: boolean
}

/** Learns what is behind a connection string. */
export async function readFacts(cluster: Cluster): Promise<ClusterFacts> {
  const hello = await cluster.read('admin', { hello: 1 })
  const build = await cluster.read('admin', { buildInfo: 1 })
  const status = await cluster.read('admin', { connectionStatus: 1 })
  const topology = hello['msg'] === 'isdbgrid' ? 'sharded' : hello['setName'] ? 'replicaSet' : 'standalone'
  const version = build['version'] as string
  return {
    topology,
    identity: topology === 'replicaSet' ? await replicaSetId(cluster) : '',
    version,
    major: Number.parseInt(version, 10),
    address: cluster.client.options.hosts[0]?.toString() ?? String(hello['me'] ?? ''),
    authenticated: (status['authInfo']?.authenticatedUsers as unknown[] | undefined)?.length !== 0,
  }
}

async function replicaSetId(cluster: Cluster): Promise<string> {
  const reply = await cluster.read('admin', { replSetGetConfig: 1 })
  const id = reply['config']?.settings?.replicaSetId
  if (!id) throw new RefusedError('UnsupportedTopology', `${cluster.name} has a replica set without replicaSetId`)
  return String(id)
}
