/** Runs `tandem verify` in a child process for verify.ts. The measurement excludes the start of the process. */
import { audit } from '../src/comparison/audit.ts'
import { AuditCluster } from '../src/comparison/audit-cluster.ts'
import { serveParent } from './child-work.ts'
import type { ReadInput } from './raw-reader.ts'

await serveParent(async ({ cluster0, cluster1, database }: ReadInput) => {
  const [left, right] = [new AuditCluster('cluster0', cluster0), new AuditCluster('cluster1', cluster1)]
  await Promise.all([left.databases(), right.databases()]) // These calls connect both clients.
  return async () => {
    const namespaces = [{ database, collection: null }]
    const report = await audit(left, right, { namespaces, ignoreIndexes: false, maxDifferences: 10 })
    if (!report.equal) throw new Error(`verify reported differences between equal clusters: ${JSON.stringify(report)}`)
    return { documents: report.documents.cluster0 + report.documents.cluster1 }
  }
})
