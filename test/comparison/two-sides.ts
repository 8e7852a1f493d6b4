import { type Db, MongoClient } from 'mongodb'
import { type AuditOptions, type AuditReport, audit } from '../../src/comparison/audit.ts'
import { AuditCluster } from '../../src/comparison/audit-cluster.ts'
import { differenceLine } from '../../src/comparison/difference.ts'
import { borrowReplicaSet } from '../support/kept-sets.ts'
import type { ReplicaSet } from '../support/replica-set.ts'

/** Two replica sets. A test fills both with the same data, and then changes one of them. */
export class TwoSides {
  readonly sets: readonly [ReplicaSet, ReplicaSet]
  readonly clients: readonly [MongoClient, MongoClient]

  private constructor(sets: [ReplicaSet, ReplicaSet]) {
    this.sets = sets
    this.clients = [new MongoClient(sets[0].uri), new MongoClient(sets[1].uri)]
  }

  static async start(): Promise<TwoSides> {
    return new TwoSides(await Promise.all([borrowReplicaSet(), borrowReplicaSet()]))
  }

  async stop(): Promise<void> {
    await Promise.all(this.clients.map((client) => client.close()))
    await Promise.all(this.sets.map((set) => set.stop()))
  }

  database(name: string): readonly [Db, Db] {
    return [this.clients[0].db(name), this.clients[1].db(name)]
  }

  /** Drops the database on both clusters, and then runs `work` on both. */
  async fill(name: string, work: (db: Db) => Promise<unknown>): Promise<readonly [Db, Db]> {
    const both = this.database(name)
    await Promise.all(
      both.map(async (db) => {
        await db.dropDatabase()
        await work(db)
      }),
    )
    return both
  }

  async audit(options: Partial<AuditOptions> = {}): Promise<AuditReport> {
    const clusters = this.sets.map((set, index) => new AuditCluster(`cluster${index}`, set.uri)) as [
      AuditCluster,
      AuditCluster,
    ]
    try {
      return await audit(...clusters, { namespaces: [], ignoreIndexes: false, maxDifferences: 100, ...options })
    } finally {
      await Promise.all(clusters.map((cluster) => cluster.close()))
    }
  }

  /** Returns the differences of one database as lines. */
  async lines(database: string, options: Partial<AuditOptions> = {}): Promise<string[]> {
    const report = await this.audit({ namespaces: [{ database, collection: null }], ...options })
    if (report.equal !== (report.totalDifferences === 0)) throw new Error(JSON.stringify(report))
    return report.differences.map(differenceLine)
  }
}
