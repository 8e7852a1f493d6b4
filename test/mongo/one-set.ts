import { MongoClient } from 'mongodb'
import { afterAll, beforeAll } from 'vitest'
import type { Cluster } from '../../src/mongo/cluster.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import type { ReplicaSet, ReplicaSetOptions } from '../support/replica-set.ts'
import { testCluster } from './clusters.ts'

export interface OneSet {
  set: ReplicaSet
  client: MongoClient
  cluster: Cluster
}

/** Starts a replica set for a test file. The fields of the returned object are set before the first test runs. */
export function oneSet(options: ReplicaSetOptions = {}): OneSet {
  const one = {} as OneSet
  beforeAll(async () => {
    const set = await borrowReplicaSet(options)
    Object.assign(one, { set, client: new MongoClient(set.uri), cluster: testCluster(set.uri) })
  })
  afterAll(async () => {
    await Promise.all([one.client?.close(), one.cluster?.close()])
    await one.set?.stop()
  })
  return one
}
