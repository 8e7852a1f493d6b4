import type { Document } from 'mongodb'
import { errorText } from '../domain/error-text.ts'
import { FatalError } from '../domain/errors.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf, isTransient } from '../mongo/errors.ts'

/**
 * Creates a collection or view.
 *
 * A server refuses a second database whose name differs from an existing one only in case, with DatabaseDifferCase
 * (13297). It keeps a database whose last collection was dropped, although listDatabases no longer shows that database
 * (measured on 6.0.27; src/mongo/db/catalog/database_holder_impl.cpp). Such an empty database is dropped here, because
 * the source may have had the two databases one after the other. Throws FatalError DestinationConflict when the other
 * database has collections or views.
 */
export async function createNamespace(
  cluster: Cluster,
  database: string,
  name: string,
  options: Document,
): Promise<void> {
  const create = () => cluster.write(database, { create: name, ...options })
  try {
    await create()
  } catch (error) {
    if (codeOf(error) !== code.databaseDifferCase) throw error
    await dropIfEmpty(cluster, database, error)
    await create()
  }
}

/**
 * Returns the name of the existing database, which only the error message contains: "… already have: [Shop] trying to
 * create [shop]".
 */
function otherNameIn(error: unknown): string | null {
  const [, name] = /already have: \[(.*)\] trying to create/.exec(error instanceof Error ? error.message : '') ?? []
  return name ?? null
}

async function dropIfEmpty(cluster: Cluster, database: string, refusal: unknown): Promise<void> {
  const other = otherNameIn(refusal)
  const own = cluster.names.onDestination(database)
  // A database of this sync has the other name: two databases of the source whose names on the destination differ only in case.
  const renamedFrom = other === null ? undefined : cluster.names.renamed.find(([, to]) => to === other)?.[0]
  const remedy =
    renamedFrom === undefined
      ? 'Drop that database on the destination and send resume'
      : `It is the name of ${renamedFrom} there (namespaceRemap). Drop or rename ${cluster.names.onSource(own)} on the source, or exclude it by a filter, and send resume`
  const conflict = (cause: unknown): FatalError =>
    new FatalError(
      'DestinationConflict',
      `creating the database ${own} on the destination: the server has ${other === null ? 'a database' : `the database ${other}`} whose name ` +
        `differs only in case (${errorText(cause)}). ${remedy}. ${notLost.source}`,
      { cause },
    )
  if (other === null || other === own || other.toLowerCase() !== own.toLowerCase()) throw conflict(refusal)
  const onSource = cluster.names.onSource(other)
  const { cursor } = await cluster.read(onSource, { listCollections: 1, nameOnly: true })
  // `system.views`, which stores the definitions of views, remains when the last view is dropped.
  const isEmpty = (cursor.firstBatch as { name: string }[]).every(({ name }) => name === 'system.views')
  if (!isEmpty) throw conflict(refusal)
  try {
    await cluster.write(onSource, { dropDatabase: 1 })
  } catch (error) {
    // For example, tandem may lack the privilege to drop the database. The user must then drop it.
    if (codeOf(error) === undefined || isTransient(error)) throw error
    throw conflict(error)
  }
}
