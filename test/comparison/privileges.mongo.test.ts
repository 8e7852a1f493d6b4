import { MongoClient } from 'mongodb'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type AuditOptions, audit } from '../../src/comparison/audit.ts'
import { AuditCluster } from '../../src/comparison/audit-cluster.ts'
import { type ReplicaSet, startReplicaSet } from '../support/replica-set.ts'

let sets: ReplicaSet[]

beforeAll(async () => {
  sets = await Promise.all([startReplicaSet({ auth: true }), startReplicaSet({ auth: true })])
  for (const set of sets) {
    await using client = await MongoClient.connect(set.uri)
    for (const database of ['one', 'two']) {
      const db = client.db(database)
      await db.collection<{ _id: number }>('c').insertMany([{ _id: 1 }, { _id: 2 }])
      await db.createCollection('v', { viewOn: 'c' })
    }
  }
})

afterAll(async () => {
  await Promise.all((sets ?? []).map((set) => set.stop()))
})

async function auditAs(name: string, role: { role: string; db: string }, options: Partial<AuditOptions> = {}) {
  const uris = await Promise.all(sets.map((set) => set.createUser(name, 'hunter2', [role])))
  const clusters = uris.map((uri, index) => new AuditCluster(`cluster${index}`, uri)) as [AuditCluster, AuditCluster]
  try {
    return await audit(...clusters, { namespaces: [], ignoreIndexes: false, maxDifferences: 10, ...options })
  } finally {
    await Promise.all(clusters.map((cluster) => cluster.close()))
  }
}

const one = { namespaces: [{ database: 'one', collection: null }] }

describe('a user who', () => {
  test('may read any database can compare all of them', async () => {
    const report = await auditAs('any', { role: 'readAnyDatabase', db: 'admin' })
    expect(report).toMatchObject({ equal: true, collections: 2, views: 2, documents: { cluster0: 4, cluster1: 4 } })
  })

  test('may read one database can compare only that database, by its name', async () => {
    expect(await auditAs('one', { role: 'read', db: 'one' }, one)).toMatchObject({ equal: true, collections: 1 })
    const refused = auditAs('alone', { role: 'read', db: 'one' })
    await expect(refused).rejects.toThrow(
      /cluster[01] refuses the user; check the credentials, and grant readAnyDatabase/,
    )
  })

  test('may not read a database gets an error, not a report without differences', async () => {
    await expect(auditAs('none', { role: 'read', db: 'two' }, one)).rejects.toThrow(/refuses the user/)
  })
})
