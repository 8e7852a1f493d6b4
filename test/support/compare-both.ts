import { MongoClient } from 'mongodb'
import { audit } from '../../src/comparison/audit.ts'
import { AuditCluster } from '../../src/comparison/audit-cluster.ts'
import { differenceLine } from '../../src/comparison/difference.ts'
import { RenamedDatabases } from '../../src/comparison/renamed-databases.ts'
import type { Namespace } from '../../src/comparison/selection.ts'
import { type Comparison, compareClusters, onSource, type Renamed, type Selects } from './compare.ts'
import { databaseNames, internalDatabases } from './databases.ts'

const differencesMax = 50

/**
 * Runs two comparisons that share no code: the oracle of these tests and `tandem verify`. The clusters are equal only if both
 * comparisons find them equal. A disagreement means that one comparison is wrong, and is reported as a difference too.
 */
export async function compareBoth(
  sourceUri: string,
  destinationUri: string,
  expected: Pick<
    NonNullable<Parameters<typeof compareClusters>[2]>,
    'shardKeys' | 'selects' | 'maxDifferences' | 'renamed'
  > = {},
): Promise<Comparison> {
  const compared = await compareClusters(sourceUri, destinationUri, expected)
  const namespaces = expected.selects
    ? await selected(sourceUri, destinationUri, expected.selects, expected.renamed)
    : []
  // Without namespaces, `verify` would compare everything.
  if (expected.selects && namespaces.length === 0) return compared
  const pairs = Object.entries(expected.renamed ?? {}).map(([from, to]) => ({ from, to }))
  const renamed = new RenamedDatabases(pairs)
  const [source, destination] = [
    new AuditCluster('cluster0', sourceUri),
    new AuditCluster('cluster1', destinationUri, renamed),
  ]
  try {
    const options = { namespaces, ignoreIndexes: false, maxDifferences: expected.maxDifferences ?? differencesMax }
    const report = await audit(source, destination, options)
    const differences = [...compared.differences, ...report.differences.map((one) => `verify: ${differenceLine(one)}`)]
    if (report.equal !== compared.equal) {
      differences.push(`the comparisons disagree: only ${compared.equal ? 'verify' : 'the oracle'} finds differences`)
    }
    if (compared.equal && report.documents.cluster0 !== compared.documents) {
      differences.push(`verify read ${report.documents.cluster0} documents, the oracle ${compared.documents}`)
    }
    return { ...compared, equal: differences.length === 0, differences }
  } finally {
    await Promise.all([source.close(), destination.close()])
  }
}

/** Returns the namespaces for `verify`: all selected collections and views that exist on either cluster. */
async function selected(
  sourceUri: string,
  destinationUri: string,
  selects: Selects,
  renamed: Renamed = {},
): Promise<Namespace[]> {
  const found = new Map<string, Namespace>()
  for (const uri of [sourceUri, destinationUri]) {
    await using client = await MongoClient.connect(uri)
    for (const listed of await databaseNames(client, internalDatabases)) {
      const database = uri === sourceUri ? listed : onSource(listed, renamed)
      if (database === null) continue
      for (const { name } of await client.db(listed).listCollections({}, { nameOnly: true }).toArray()) {
        if (name.startsWith('system.') || !selects(database, name)) continue
        found.set(`${database}.${name}`, { database, collection: name })
      }
    }
  }
  return [...found.values()]
}
