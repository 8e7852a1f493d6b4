import { type Document, MongoClient } from 'mongodb'
import { databases } from './data-set.ts'

/** A readable description of one collection or view of a cluster. Documents and bytes are null for a view. */
export interface CollectionFacts {
  readonly namespace: string
  readonly documents: number | null
  readonly bytes: number | null
  readonly indexes: string[]
  readonly features: string[]
}

export async function describeCluster(uri: string): Promise<CollectionFacts[]> {
  await using client = new MongoClient(uri)
  const facts: CollectionFacts[] = []
  for (const database of databases) {
    const db = client.db(database)
    const listed = (await db.listCollections().toArray()) as { name: string; type?: string; options?: Document }[]
    for (const { name, type, options = {} } of listed.sort((one, other) => (one.name < other.name ? -1 : 1))) {
      if (name.startsWith('system.')) continue
      const namespace = `${database}.${name}`
      if (type === 'view') {
        facts.push({ namespace, documents: null, bytes: null, indexes: [], features: [`view of ${options['viewOn']}`] })
        continue
      }
      const stats = await db
        .collection(name)
        .aggregate([{ $collStats: { storageStats: {} } }])
        .next()
      const { count: documents, size: bytes } = stats?.['storageStats'] ?? { count: 0, size: 0 }
      const indexes = (await db.collection(name).listIndexes().toArray()).filter(
        (index) => index['name'] !== '_id_' && !index['clustered'],
      )
      facts.push({ namespace, documents, bytes, indexes: indexes.map(describeIndex), features: featuresOf(options) })
    }
  }
  return facts
}

function describeIndex(index: Document): string {
  if (index['unique']) return 'unique'
  if (index['expireAfterSeconds'] !== undefined) return 'TTL'
  if (index['hidden']) return 'hidden'
  if (index['partialFilterExpression']) return 'partial'
  const kind = Object.values(index['key'] as Document).find((value) => typeof value === 'string')
  if (kind) return kind === '2dsphere' ? 'geo' : kind
  return index['sparse'] ? 'sparse' : 'plain'
}

function featuresOf(options: Document): string[] {
  const names = { capped: 'capped', clusteredIndex: 'clustered', collation: 'collation', validator: 'validator' }
  const features = Object.entries(names).flatMap(([option, name]) => (options[option] ? [name] : []))
  return options['changeStreamPreAndPostImages']?.enabled ? [...features, 'pre/post images'] : features
}
