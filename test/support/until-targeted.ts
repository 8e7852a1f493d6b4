import type { Collection } from 'mongodb'
import type { AskedDocuments } from './asked-documents.ts'
import type { Row } from './rows.ts'
import { until } from './until.ts'
import { untilApplied } from './until-applied.ts'

/**
 * tandem reads the chunks of the source in the background. Resolves when an update of this document, whose filter names its shard
 * key, costs a read on one shard only.
 */
export async function untilTargeted(
  clusters: { source: { uri: string }; destination: { uri: string } },
  collection: Collection<Row>,
  filter: Row,
  asked: AskedDocuments,
): Promise<void> {
  await until('an update that one shard is asked for', async () => {
    asked.restart()
    await collection.updateOne(filter, { $inc: { n: 1 } })
    await untilApplied(clusters, [[collection.dbName, collection.collectionName]])
    const counts = await asked.read()
    const shards = counts.filter(({ commands }) => commands > 0).length
    if (shards !== 1) throw new Error(`${shards} shards were asked: ${JSON.stringify(counts)}`)
  })
}
