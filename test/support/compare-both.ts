import { audit } from '../../src/audit/audit.ts'
import { AuditCluster } from '../../src/audit/audit-cluster.ts'
import { differenceLine } from '../../src/audit/difference.ts'
import { type Comparison, compareClusters } from './compare.ts'

const differencesMax = 50

/**
 * Two comparisons that share no code: the oracle of these tests, and `tandem verify`. Equal only when both say so; where
 * they disagree, one of them is at fault, and that is a difference too.
 */
export async function compareBoth(sourceUri: string, destinationUri: string): Promise<Comparison> {
  const compared = await compareClusters(sourceUri, destinationUri)
  const [source, destination] = [new AuditCluster('cluster0', sourceUri), new AuditCluster('cluster1', destinationUri)]
  try {
    const options = { namespaces: [], ignoreIndexes: false, maxDifferences: differencesMax }
    const report = await audit(source, destination, options)
    const differences = [...compared.differences, ...report.differences.map((one) => `verify: ${differenceLine(one)}`)]
    if (report.equal !== compared.equal) {
      differences.push(`the comparisons disagree: ${compared.equal ? 'verify' : 'the oracle'} alone finds differences`)
    }
    if (compared.equal && report.documents.cluster0 !== compared.documents) {
      differences.push(`verify read ${report.documents.cluster0} documents, the oracle ${compared.documents}`)
    }
    return { ...compared, equal: differences.length === 0, differences }
  } finally {
    await Promise.all([source.close(), destination.close()])
  }
}
