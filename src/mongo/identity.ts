import type { Document } from 'mongodb'
import { RefusedError } from '../domain/errors.ts'
import type { Cluster } from './cluster.ts'
import { code, codeOf } from './errors.ts'

export interface ClusterFacts {
  topology: 'replicaSet' | 'sharded' | 'standalone'
  /** Stays the same when hosts are renamed or moved; another cluster on the same address has another. Empty when the user may not ask. */
  identity: string
  version: string
  major: number
  /** host:port of one member, for directionMapping. */
  address: string
  authenticated: boolean
  /** Everything the user may do somewhere; empty without authentication. */
  actions: Set<string>
}

/** Learns what is behind a connection string. */
export async function readFacts(cluster: Cluster): Promise<ClusterFacts> {
  const hello = await cluster.read('admin', { hello: 1 })
  const build = await cluster.read('admin', { buildInfo: 1 })
  const status = await cluster.read('admin', { connectionStatus: 1, showPrivileges: true })
  const topology = hello['msg'] === 'isdbgrid' ? 'sharded' : hello['setName'] ? 'replicaSet' : 'standalone'
  const version = build['version'] as string
  return {
    topology,
    identity: topology === 'replicaSet' ? await replicaSetId(cluster) : '',
    actions: actionsOf(status),
    version,
    major: Number.parseInt(version, 10),
    address: cluster.client.options.hosts[0]?.toString() ?? String(hello['me'] ?? ''),
    authenticated: (status['authInfo']?.authenticatedUsers as unknown[] | undefined)?.length !== 0,
  }
}

async function replicaSetId(cluster: Cluster): Promise<string> {
  const reply = await cluster.read('admin', { replSetGetConfig: 1 }).catch((error) => {
    if (codeOf(error) === code.unauthorized) return null
    throw error
  })
  if (!reply) return ''
  const id = reply['config']?.settings?.replicaSetId
  if (!id) throw new RefusedError('UnsupportedTopology', `${cluster.name} has a replica set without replicaSetId`)
  return String(id)
}

function actionsOf(status: Document): Set<string> {
  const privileges = (status['authInfo']?.authenticatedUserPrivileges ?? []) as { actions: string[] }[]
  return new Set(privileges.flatMap(({ actions }) => actions))
}
