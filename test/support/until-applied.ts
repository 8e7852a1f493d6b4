import { type Document, MongoClient } from 'mongodb'
import type { Selects } from './compare.ts'
import { until } from './until.ts'
import { archiveDatabase, workloadCollections, workloadDatabases } from './workload-world.ts'

interface Marker extends Document {
  _id: string
}

type Name = readonly [database: string, collection: string]

/**
 * Resolves when all changes of the source up to now are applied on the destination. Inserts a document into the first of these
 * selected collections of the source that accepts it, and waits until the destination has it.
 */
export async function untilApplied(
  clusters: { source: { uri: string }; destination: { uri: string } },
  names: readonly Name[],
): Promise<void> {
  await using source = await MongoClient.connect(clusters.source.uri)
  await using destination = await MongoClient.connect(clusters.destination.uri)
  const _id = `marker ${Date.now()}`
  const on = (client: MongoClient, [database, name]: Name) => client.db(database).collection<Marker>(name)
  for (const name of names) {
    // Some names are views, and some collections have unique indexes.
    const isInserted = await on(source, name)
      .insertOne({ _id }, { bypassDocumentValidation: true })
      .then(
        () => true,
        () => false,
      )
    if (!isInserted) continue
    return await until(`the marker in ${name.join('.')} on the destination`, async () => {
      if (!(await on(destination, name).findOne({ _id })))
        throw new Error('the destination does not have the marker yet')
    })
  }
  throw new Error('no collection accepts the marker')
}

/** Returns the selected collections of the random workload. */
export function selectedNames(selects: Selects): Name[] {
  const all = [...workloadDatabases, archiveDatabase].flatMap((database) =>
    workloadCollections.map((name) => [database, name] as const),
  )
  return all.filter(([database, name]) => selects(database, name))
}
