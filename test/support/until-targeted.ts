import type { Collection } from 'mongodb'
import type { AskedDocuments } from './asked-documents.ts'
import type { Row } from './rows.ts'
import { until } from './until.ts'
import { untilApplied } from './until-applied.ts'

/**
 * Waits until tandem knows the chunks of the source, which it reads in the background. After that, tandem
 * reads an updated document from one shard only. `filter` contains the document's shard key.
 */
export async function untilTargeted(
  clusters: { source: { uri: string }; destination: { uri: string } },
  collection: Collection<Row>,
  filter: Row,
  asked: AskedDocuments,
): Promise<void> {
  await until('an update after which tandem reads one shard only', async () => {
    asked.restart()
    await collection.updateOne(filter, { $inc: { n: 1 } })
    await untilApplied(clusters, [[collection.dbName, collection.collectionName]])
    const counts = await asked.read()
    const shards = counts.filter(({ commands }) => commands > 0).length
    if (shards !== 1) throw new Error(`${shards} shards were read: ${JSON.stringify(counts)}`)
  })
}
