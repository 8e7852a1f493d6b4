import { BSON, type CollectionInfo, type Document, type MongoClient } from 'mongodb'
import { audit } from '../../src/comparison/audit.ts'
import { AuditCluster } from '../../src/comparison/audit-cluster.ts'
import { differenceLine } from '../../src/comparison/difference.ts'
import { RenamedDatabases } from '../../src/comparison/renamed-databases.ts'
import { type CollectionName, splitName } from '../../src/comparison/selection.ts'
import type { PairedSets } from './paired-sets.ts'

/** The namespaces of one cluster that a test compares, each with its content as text. */
type Content = Record<string, string[]>

/**
 * Compares two clusters of which the destination has collections under other names, first by code of its own and then by
 * `tandem verify`. Returns the differences.
 * @param names the name on the destination of each renamed collection
 * @param selects the namespaces of the source that are synced
 */
export async function comparePlaced(
  pair: PairedSets,
  names: Readonly<Record<string, string>>,
  selects: (name: string) => boolean,
): Promise<string[]> {
  const back = Object.fromEntries(Object.entries(names).map(([from, to]) => [to, from]))
  const taken = new Set(Object.values(names))
  const ours = await contentOf(pair.sourceClient, (name) => (selects(name) ? (names[name] ?? name) : null))
  const theirs = await contentOf(pair.destinationClient, (name) => {
    // The name of a renamed collection that no other one has taken belongs to nobody.
    if (!(name in back)) return name in names || !selects(name) ? null : name
    return name
  })
  const differences = [...new Set([...Object.keys(ours), ...Object.keys(theirs)])].sort().flatMap((name) => {
    const [a, b] = [ours[name], theirs[name]]
    if (a && b) return a.join('\n') === b.join('\n') ? [] : [`${name} differs: ${a.length} | ${b.length} lines`]
    return [`${name} is only on the ${a ? 'source' : 'destination'}`]
  })
  const selected = Object.keys(ours).map((name): CollectionName => splitName(back[name] ?? name))
  if (selected.length === 0) return [...differences, `nothing is compared; ${taken.size} names`]
  const renamed = new RenamedDatabases(Object.entries(names).map(([from, to]) => ({ from, to })))
  const [left, right] = [
    new AuditCluster('cluster0', pair.source.uri),
    new AuditCluster('cluster1', pair.destination.uri, renamed),
  ]
  try {
    const report = await audit(left, right, { namespaces: selected, ignoreIndexes: false, maxDifferences: 50 })
    return [...differences, ...report.differences.map((one) => `verify: ${differenceLine(one)}`)]
  } finally {
    await Promise.all([left.close(), right.close()])
  }
}

/** @param nameOf the name to use for a namespace; null leaves it out */
export async function contentOf(client: MongoClient, nameOf: (name: string) => string | null): Promise<Content> {
  const content: Content = {}
  const { databases } = await client.db('admin').admin().listDatabases({ nameOnly: true })
  for (const { name: database } of databases) {
    if (/^(admin|config|local|tandem_internal|mongosync_internal_.*)$/.test(database)) continue
    const db = client.db(database)
    const listed = (await db.listCollections().toArray()) as CollectionInfo[]
    for (const { name, type, options = {} } of listed) {
      const shown = name.startsWith('system.') ? null : nameOf(`${database}.${name}`)
      if (shown === null) continue
      content[shown] = [`${type} ${BSON.EJSON.stringify(options)}`]
      if (type === 'view') continue
      const indexes: Document[] = await db.collection(name).listIndexes().toArray()
      content[shown].push(...indexes.map((one) => BSON.EJSON.stringify(one)).sort())
      const documents = await db.collection(name).find().sort({ _id: 1 }).toArray()
      content[shown].push(...documents.map((one) => BSON.EJSON.stringify(one, { relaxed: false })))
    }
  }
  return content
}
