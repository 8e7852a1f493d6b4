import type { Document } from 'mongodb'
import { errorText } from '../domain/error-text.ts'
import { FatalError } from '../domain/errors.ts'
import { notLost } from '../domain/not-lost.ts'
import type { Cluster } from '../mongo/cluster.ts'
import { code, codeOf, isTransient } from '../mongo/errors.ts'
import { listCollections } from './listing.ts'

/** Creates a collection or view, as `withoutCaseConflict` describes. */
export async function createNamespace(
  cluster: Cluster,
  database: string,
  name: string,
  options: Document,
  isOurs?: (uuid: string) => boolean,
): Promise<void> {
  const there = cluster.names.databaseOf(database, name)
  await withoutCaseConflict(
    cluster,
    database,
    () => cluster.write(database, { create: name, ...options }),
    isOurs,
    there,
  )
}

/**
 * Sends a command that creates a database if it does not exist.
 *
 * A server refuses a second database whose name differs from an existing one only in case, with DatabaseDifferCase
 * (13297). It keeps a database whose last collection was dropped, although listDatabases no longer shows that database
 * (measured on 6.0.27; src/mongo/db/catalog/database_holder_impl.cpp). So does `config.databases` of a sharded cluster.
 * Such an empty database is dropped here, because the source may have had the two databases one after the other. Throws
 * FatalError DestinationConflict when the other database has collections or views.
 * @param isOurs returns true if a destination UUID belongs to a collection of this sync
 * @param own the name on the destination of the database that is created
 */
export async function withoutCaseConflict(
  cluster: Cluster,
  database: string,
  create: () => Promise<unknown>,
  isOurs: (uuid: string) => boolean = () => false,
  own = cluster.names.onDestination(database),
): Promise<void> {
  try {
    await create()
  } catch (error) {
    if (codeOf(error) !== code.databaseDifferCase) throw error
    await dropIfEmpty(cluster, { database, own }, error, isOurs)
    await create()
  }
}

/**
 * Returns the name of the existing database, which only the error message contains. A replica set says "… already have:
 * [Shop] trying to create [shop]". The config server of a sharded cluster says "… have: Shop want to add: shop" (measured
 * on 6.0.27). "want to create" is accepted too, although no server has been measured that says so.
 */
export function otherNameIn(message: string): string | null {
  const [, ofSet, ofConfig] =
    /already have: \[(.*)\] trying to create|\bhave: (.*) want to (?:add|create): /.exec(message) ?? []
  return ofSet ?? ofConfig ?? null
}

async function dropIfEmpty(
  cluster: Cluster,
  { database, own }: { database: string; own: string },
  refusal: unknown,
  isOurs: (uuid: string) => boolean,
): Promise<void> {
  const other = otherNameIn(refusal instanceof Error ? refusal.message : '')
  const conflict = async (cause: unknown): Promise<FatalError> =>
    new FatalError(
      'DestinationConflict',
      `creating the database ${own} on the destination: the server has ${other === null ? 'a database' : `the database ${other}`} whose name ` +
        `differs only in case (${errorText(cause)}). ${await remedyFor(cluster, { database, own }, other, isOurs)}. ${notLost.source}`,
      { cause },
    )
  if (other === null || other === own || other.toLowerCase() !== own.toLowerCase()) throw await conflict(refusal)
  const onSource = cluster.names.onSource(other)
  const { cursor } = await cluster.read(onSource, { listCollections: 1, nameOnly: true })
  // `system.views`, which stores the definitions of views, remains when the last view is dropped.
  const isEmpty = (cursor.firstBatch as { name: string }[]).every(({ name }) => name === 'system.views')
  if (!isEmpty) throw await conflict(refusal)
  try {
    await cluster.write(onSource, { dropDatabase: 1 })
  } catch (error) {
    // For example, tandem may lack the privilege to drop the database. The user must then drop it.
    if (codeOf(error) === undefined || isTransient(error)) throw error
    throw await conflict(error)
  }
}

/**
 * Says what removes the conflict. The other database belongs to this sync if it has the name that namespaceRemap gives a
 * database, or if it contains a collection of this sync. Nobody may drop such a database on the destination.
 * @param other the name of the other database on the destination
 */
async function remedyFor(
  cluster: Cluster,
  { database, own }: { database: string; own: string },
  other: string | null,
  isOurs: (uuid: string) => boolean,
): Promise<string> {
  const { names } = cluster
  const foreign = 'Drop that database on the destination and send resume'
  if (other === null) return foreign
  const otherOnSource = names.onSource(other)
  const resolve = `Drop or rename ${database} on the source, or exclude it by a filter, and send resume`
  // The sync selects no displaced database: the database that has its name on the destination is not of this sync.
  if (otherOnSource !== other && !names.displaced.includes(otherOnSource))
    return `It is the name of ${otherOnSource} there (namespaceRemap). ${resolve}`
  const sources = names.sourcesOf(other)
  const listed = await Promise.all(sources.map((source) => listCollections(cluster, source)))
  if (!listed.flat().some(({ uuid }) => isOurs(uuid))) return foreign
  const why = own === database ? '' : `, and namespaceRemap gives ${database} that name too`
  return `It is the database ${otherOnSource} of the source, which this sync copied${why}. ${resolve}`
}
